/** The compared systems: a host, the same host with a process for each function, and one process with all sessions. */
import { copyFile, link, mkdir, readFile, writeFile } from 'node:fs/promises';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import type * as OrtModule from 'onnxruntime-node';
import { loadOnnxRuntime } from '../../src/tensor/index.ts';
import { descendants, Servers } from '../servers.ts';
import { binaryRequest, metric } from '../shared/requests.ts';
import type { Head } from './models.ts';

export interface Subject extends AsyncDisposable {
  /**
   * Calls one function. Resolves to false if there is no answer by the deadline; rejects an answer of another function.
   */
  call(index: number, deadlineMs?: number): Promise<boolean>;
  /** Sessions loaded so far. */
  loads(): Promise<number>;
  /** Of all its processes; for the bare loop the memory that its sessions added. */
  memoryBytes(): Promise<number>;
}

const value = 0.5;

export interface HostOptions {
  readonly cores: number;
  readonly memoryBytes: number;
  readonly isolation: 'own' | 'shared';
  readonly sloMs: number;
}

/** A host as in production, called over kept-alive connections. */
export async function hostSubject(heads: readonly Head[], options: HostOptions): Promise<Subject> {
  const { cores, memoryBytes, isolation, sloMs } = options;
  const servers = await Servers.create();
  for (const [index, { modelPath }] of heads.entries()) {
    const folder = join(servers.folder, 'functions', nameOf(index));
    await mkdir(folder, { recursive: true });
    // Copied only if the temporary folder is on another disk.
    await link(modelPath, join(folder, 'model.onnx')).catch(() => copyFile(modelPath, join(folder, 'model.onnx')));
    await writeFile(join(folder, 'function.json'), JSON.stringify({ slo: `${sloMs}ms`, isolation }));
  }
  const flags = [
    '--cpu-profiling',
    'off',
    '--cpu-cores',
    String(cores),
    '--cpu-memory',
    `${Math.round(memoryBytes / 2 ** 20)}MiB`,
  ];
  const { url, process: host } = await servers.startHost(flags);
  const agent = new Agent({ keepAlive: true, maxSockets: 2000 });
  const inputs = new Map(
    heads.map(({ width }) => [width, binaryRequest([1, width], new Float32Array(width).fill(value))]),
  );
  return {
    async call(index, deadlineMs) {
      const head = heads[index];
      const input = head && inputs.get(head.width);
      if (head === undefined || input === undefined) throw new Error(`there is no function ${index}`);
      const outputs = await infer(agent, `${url}/v2/models/${nameOf(index)}/infer`, input, deadlineMs);
      if (outputs !== undefined) check(index, head, outputs);
      return outputs !== undefined;
    },
    async loads() {
      return await metric(url, 'modelmesh_loadmodel_milliseconds_count');
    },
    async memoryBytes() {
      const pids = [host.pid ?? 0, ...(await descendants(host.pid ?? 0))];
      return (await Promise.all(pids.map(proportionalBytes))).reduce((sum, bytes) => sum + bytes, 0);
    },
    async [Symbol.asyncDispose]() {
      agent.destroy();
      await servers[Symbol.asyncDispose]();
    },
  };
}

const nameOf = (index: number): string => `head-${index}`;

async function proportionalBytes(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8').catch(() => '');
  return Number(/^Pss: +(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024;
}

/** The first number of the answer; undefined without an answer by the deadline. */
async function infer(
  agent: Agent,
  url: string,
  input: ReturnType<typeof binaryRequest>,
  deadlineMs = Infinity,
): Promise<number | undefined> {
  const leftMs = deadlineMs - performance.now();
  if (leftMs <= 0) return undefined;
  const end = new AbortController();
  const timer = leftMs === Infinity ? undefined : setTimeout(() => end.abort(), leftMs);
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const headers = { ...input.headers, 'Content-Length': input.body.byteLength };
      const options = { method: 'POST', agent, headers, signal: end.signal };
      httpRequest(url, options, resolve).on('error', reject).end(input.body);
    });
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    if (response.statusCode !== 200) return undefined;
    return Buffer.concat(chunks).readFloatLE(Number(response.headers['inference-header-content-length']));
  } catch (error) {
    if (end.signal.aborted) return undefined;
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Calls run in order of arrival in this process, without any transport. */
export async function bareSubject(heads: readonly Head[]): Promise<Subject> {
  const ort = loadOnnxRuntime();
  const before = process.memoryUsage.rss();
  const sessions: OrtModule.InferenceSession[] = [];
  for (const { modelPath } of heads) {
    sessions.push(
      await ort.InferenceSession.create(modelPath, {
        intraOpNumThreads: 1,
        interOpNumThreads: 1,
        enableCpuMemArena: false,
      }),
    );
  }
  const bytes = process.memoryUsage.rss() - before;
  let last: Promise<boolean> = Promise.resolve(true);
  const run = async (index: number, deadlineMs: number): Promise<boolean> => {
    if (performance.now() > deadlineMs) return false;
    const [head, session] = [heads[index], sessions[index]];
    if (head === undefined || session === undefined) throw new Error(`there is no function ${index}`);
    const x = new ort.Tensor('float32', new Float32Array(head.width).fill(value), [1, head.width]);
    const { y } = await session.run({ x });
    check(index, head, (y?.data as Float32Array | undefined)?.[0]);
    return true;
  };
  const inTurn = async (before: Promise<boolean>, index: number, deadlineMs: number): Promise<boolean> => {
    await before.catch(() => undefined);
    return await run(index, deadlineMs);
  };
  return {
    loads: () => Promise.resolve(heads.length),
    call: (index, deadlineMs = Infinity) => (last = inTurn(last, index, deadlineMs)),
    memoryBytes: () => Promise.resolve(bytes),
    async [Symbol.asyncDispose]() {
      for (const session of sessions) await session.release();
    },
  };
}

function check(index: number, { factor }: Head, y: number | undefined): void {
  const wanted = value * factor;
  if (y === undefined || Math.abs(y - wanted) > 1e-3 * wanted) {
    throw new Error(`function ${index} answered ${y}, not ${wanted}`);
  }
}
