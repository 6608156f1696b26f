/** Every benchmark is a file `bench/<name>.ts` that exports `benchmark`. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Benchmark } from './benchmark.ts';

/** Files of the framework, which are not benchmarks. */
const frame: ReadonlySet<string> = new Set([
  'benchmark',
  'budget',
  'command',
  'echo',
  'gpu-server',
  'machine',
  'main',
  'progress',
  'registry',
  'report',
  'servers',
]);

export function benchmarkNames(folder = import.meta.dirname): string[] {
  return readdirSync(folder)
    .map((file) => /^([a-z0-9-]+)\.ts$/.exec(file)?.[1])
    .filter((name) => name !== undefined)
    .filter((name) => !frame.has(name))
    .sort();
}

/** Loads one benchmark. @throws Error if the file does not export a benchmark of its own name */
export async function loadBenchmark(name: string, folder = import.meta.dirname): Promise<Benchmark> {
  const module = (await import(pathToFileURL(join(folder, `${name}.ts`)).href)) as { benchmark?: Benchmark };
  if (module.benchmark?.name !== name) throw new Error(`bench/${name}.ts does not export a benchmark named '${name}'`);
  return module.benchmark;
}
