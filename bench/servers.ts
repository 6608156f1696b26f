/** Starts the processes that benchmarks and tests use, and always ends them. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
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

/** A temporary folder and its processes; `using` ends both. */
export class Servers implements AsyncDisposable {
  readonly folder: string;
  /** What hosts and workers are started by: the command of this checkout, or that of another release. */
  program = turntable;
  readonly #children: ChildProcess[] = [];
  /** For a program that fails or is stopped. */
  readonly #endAll = (): void => {
    for (const child of this.#children) child.kill('SIGKILL');
  };

  private constructor(folder: string) {
    this.folder = folder;
    process.once('exit', this.#endAll);
  }

  static async create(): Promise<Servers> {
    return new Servers(await mkdtemp(join(tmpdir(), 'turntable-servers-')));
  }

  /** Makes a function folder that {@link startHost} serves; `among` names another folder than `functions`. */
  async addFunction(name: string, graph: GraphBuilder, settings: object, among = 'functions'): Promise<void> {
    const folder = join(this.folder, among, name);
    await mkdir(folder, { recursive: true });
    await writeModel(graph.build(), join(folder, 'model.onnx'));
    await writeFile(join(folder, 'function.json'), JSON.stringify(settings));
  }

  /** Makes a folder of this name beside the others. */
  async makeFolder(name: string): Promise<string> {
    const folder = join(this.folder, name);
    await mkdir(folder, { recursive: true });
    return folder;
  }

  /**
   * Starts a host on a free port with the functions of this folder, and waits until it is ready.
   * @param environment added to this process's own
   * @param through a command that execs the command after it
   */
  startHost(
    flags: readonly string[] = [],
    environment: Readonly<Record<string, string>> = {},
    through: readonly string[] = [],
  ): Promise<StartedServer> {
    const data = join(this.folder, 'data');
    const functions = join(this.folder, 'functions');
    const paths = ['--data', data, '--functions', functions];
    return this.start(
      [this.program, 'serve', '--port', '0', '--log-level', 'error', ...paths, ...flags],
      environment,
      through,
    );
  }

  /** Starts a worker of a host's queue, and waits until it is ready. */
  startWorker(
    name: string,
    flags: readonly string[],
    through: readonly string[] = [],
    environment: Readonly<Record<string, string>> = {},
  ): Promise<StartedServer> {
    // The data folder of the host, unless the flags name another store.
    const store = ['--store', join(this.folder, 'data')];
    const own = ['--name', name, '--log-level', 'error', '--data', join(this.folder, name)];
    const words = ['worker', ...own, ...store, ...flags];
    return this.start([this.program, ...words], environment, through, /takes overflow/);
  }

  /** Starts a Node program that prints its URL, or another line, when it is ready. */
  async start(
    args: readonly string[],
    environment: Readonly<Record<string, string>> = {},
    through: readonly string[] = [],
    ready = /http:\/\/[\w.:]+/,
  ): Promise<StartedServer> {
    const env = { ...process.env, ...environment };
    // The command says itself how Node is to be started.
    const words = args[0] === this.program ? args : [process.execPath, ...args];
    const [command = process.execPath, ...rest] = [...through, ...words];
    const child = spawn(command, rest, { cwd: projectRoot, env, stdio: ['ignore', 'pipe', 'inherit'] });
    this.#children.push(child);
    for await (const line of createInterface({ input: child.stdout })) {
      const url = ready.exec(line)?.[0];
      if (url !== undefined) return { url, process: child };
    }
    throw new Error(`${args.join(' ')} ended before it was ready`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#endAll();
    process.off('exit', this.#endAll);
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** A program below bench/ that reads and writes lines of JSON. */
export class Program implements Disposable {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(file: string, order: object) {
    this.#child = spawn(process.execPath, [join(projectRoot, 'bench', file)], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
    this.tell(JSON.stringify(order));
  }

  tell(line: string): void {
    this.#child.stdin!.write(`${line}\n`);
  }

  closeInput(): void {
    this.#child.stdin!.end();
  }

  /** The next line of its output. */
  async line(): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error(`${this.#child.spawnargs.at(-1)} ended without an answer`);
    return value;
  }

  [Symbol.dispose](): void {
    this.#child.kill('SIGKILL');
  }
}

/** The answer of a {@link Program} to one order. */
export async function ask<Reply>(file: string, order: object): Promise<Reply> {
  using program = new Program(file, order);
  return JSON.parse(await program.line()) as Reply;
}

/** The processes of a host's instances, blank ones included. Linux only. */
export const instancePids = (host: ChildProcess): Promise<number[]> => childPids(host, 'instance-process');

/** The children of a process with this word in their command. Linux only; none if the process is gone. */
export async function childPids(
  { pid: parent }: { readonly pid?: number | undefined },
  word: string,
): Promise<number[]> {
  const children = await readFile(`/proc/${parent}/task/${parent}/children`, 'utf8').catch(() => '');
  const pids = children.trim().split(' ').filter(Boolean).map(Number);
  const commands = await Promise.all(
    pids.map(async (pid) => await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  );
  return pids.filter((_, index) => commands[index]?.includes(word));
}

/**
 * Bytes of a process by a field of /proc/PID/status: VmRSS, VmHWM (the most so far), RssAnon (without pages of files, which
 * several share). Linux only; 0 if the process is gone.
 */
export async function memoryOf(pid: number, field: 'VmRSS' | 'VmHWM' | 'RssAnon'): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1] ?? 0) * 1024;
}

/** The process ids of all descendants of a process. Linux only; none if the process is gone. */
export async function descendants(pid: number): Promise<number[]> {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '');
  const children = text.trim().split(' ').filter(Boolean).map(Number);
  return [...children, ...(await Promise.all(children.map(descendants))).flat()];
}

/** A port that nothing listens on now, for a server that has to restart at its address. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
