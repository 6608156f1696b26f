/** The nine recurrent functions of Chrion's Table 7: the models of its Table 6 that every pattern can serve. */
import { readFileSync } from 'node:fs';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import { projectRoot, type Servers } from '../servers.ts';

export interface RecurrentFunction {
  readonly name: string;
  readonly layers: number;
  readonly hidden: number;
  readonly sequence: number;
  readonly batch: number;
}

/** Scale of the paper's models. Activations are in memory that functions share, so widths decide what is swapped. */
export interface Scale {
  readonly layers: number;
  readonly width: number;
  readonly sequence: number;
  readonly batch: number;
}

interface Column {
  readonly column: string;
  readonly layers: number;
  readonly batch: number;
  readonly ioSize: number;
  readonly sequence: number;
  readonly memoryOptimalMegabytes: number | null;
}

const scaled = (size: number, factor: number): number => Math.max(1, Math.round(size * factor));

export function nineFunctions(scale: Scale): RecurrentFunction[] {
  const columns = JSON.parse(readFileSync(join(projectRoot, 'test/reference/chrion-table6.json'), 'utf8')) as Column[];
  return columns
    .filter(({ memoryOptimalMegabytes }) => memoryOptimalMegabytes !== null)
    .map(({ column, layers, batch, ioSize, sequence }) => ({
      name: `lstm-${column.toLowerCase()}`,
      layers: scaled(layers, scale.layers),
      hidden: scaled(ioSize, scale.width),
      sequence: scaled(sequence, scale.sequence),
      batch: scaled(batch, scale.batch),
    }));
}

/** Bytes of both matrices and both biases of each layer, as 32-bit floats. */
export function weightBytesOf({ layers, hidden }: RecurrentFunction): number {
  return layers * 4 * hidden * (2 * hidden + 2) * 4;
}

/** Writes the function folders of a host. @param sloMs SLO of each function */
export async function writeFunctions(
  servers: Servers,
  functions: readonly RecurrentFunction[],
  sloMs: number,
  cacheName: string,
): Promise<void> {
  for (const [index, { name, ...settings }] of functions.entries()) {
    const folder = join(servers.folder, 'functions', name);
    await mkdir(folder, { recursive: true });
    const { model } = buildArchitecture('lstm', settings, index + 1);
    await writeModel(model, join(folder, 'model.onnx'));
    await writeFile(join(folder, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: `${sloMs}ms` }));
  }
  // Kernels are compiled once for all runs of the benchmark.
  const compiled = join(tmpdir(), 'turntable-bench-gpu', cacheName);
  await mkdir(compiled, { recursive: true });
  await mkdir(join(servers.folder, 'data', 'cache'), { recursive: true });
  await symlink(compiled, join(servers.folder, 'data', 'cache', 'gpu'));
}
