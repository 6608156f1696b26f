/** Starts the processes that benchmarks and tests talk to, and ends them whatever happens. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { writeModel, type GraphBuilder } from '../src/onnx/index.ts';

export const projectRoot = join(import.meta.dirname, '..');
const turntable = join(projectRoot, 'bin/turntable.js');

export interface StartedServer {
  readonly url: string;
  readonly process: ChildProcess;
}

/** A temporary folder and the processes that live in it; `using` ends both. */
export class Servers implements AsyncDisposable {
  readonly folder: string;
  readonly #children: ChildProcess[] = [];

  private constructor(folder: string) {
    this.folder = folder;
  }

  static async create(): Promise<Servers> {
    return new Servers(await mkdtemp(join(tmpdir(), 'turntable-servers-')));
  }

  /** Makes a function folder that {@link startHost} serves. */
  async addFunction(name: string, graph: GraphBuilder, settings: object): Promise<void> {
    const folder = join(this.folder, 'functions', name);
    await mkdir(folder, { recursive: true });
    await writeModel(graph.build(), join(folder, 'model.onnx'));
    await writeFile(join(folder, 'function.json'), JSON.stringify(settings));
  }

  /** A host on a free port with the functions of this folder, when it is ready. @param environment beside this process's own */
  startHost(flags: readonly string[] = [], environment: Readonly<Record<string, string>> = {}): Promise<StartedServer> {
    const data = join(this.folder, 'data');
    const functions = join(this.folder, 'functions');
    const paths = ['--data', data, '--functions', functions];
    return this.start([turntable, 'serve', '--port', '0', '--log-level', 'error', ...paths, ...flags], environment);
  }

  /** A Node program that prints its URL when it is ready. */
  async start(args: readonly string[], environment: Readonly<Record<string, string>> = {}): Promise<StartedServer> {
    const env = { ...process.env, ...environment };
    const child = spawn(process.execPath, args, { cwd: projectRoot, env, stdio: ['ignore', 'pipe', 'inherit'] });
    this.#children.push(child);
    for await (const line of createInterface({ input: child.stdout })) {
      const url = /http:\/\/[\w.:]+/.exec(line)?.[0];
      if (url !== undefined) return { url, process: child };
    }
    throw new Error(`${args.join(' ')} ended before it was ready`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children) child.kill('SIGKILL');
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

export function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2;
}

/** The processes of a host's instances, blank ones included. Linux only. */
export async function instancePids(host: ChildProcess): Promise<number[]> {
  const children = await readFile(`/proc/${host.pid}/task/${host.pid}/children`, 'utf8');
  const pids = children.trim().split(' ').filter(Boolean).map(Number);
  const commands = await Promise.all(
    pids.map(async (pid) => await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  );
  return pids.filter((_, index) => commands[index]?.includes('instance-process'));
}
