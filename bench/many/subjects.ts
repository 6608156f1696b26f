/**
 * What is compared: the pools, the same pools with a process for each function, and one process with all sessions
 * loaded.
 */
import type * as OrtModule from 'onnxruntime-node';
import { CpuError, createCpuPools, type CpuPools } from '../../src/cpu/index.ts';
import { elements, loadOnnxRuntime, tensorOf } from '../../src/tensor/index.ts';
import type { Head } from './models.ts';

export interface Subject extends AsyncDisposable {
  /**
   * Calls one function. Resolves to false where it was not answered by that instant; rejects where the answer is
   * another function's.
   */
  call(index: number, deadlineMs?: number): Promise<boolean>;
  readonly loads: number;
  /** Of all its processes; of the bare one what its sessions added. */
  memoryBytes(): Promise<number> | number;
}

const value = 0.5;

export function poolsSubject(
  heads: readonly Head[],
  options: { readonly cores: number; readonly memoryBytes: number; readonly isolation: 'own' | 'shared' },
): Subject {
  const { cores, memoryBytes, isolation } = options;
  let loads = 0;
  const pools: CpuPools = createCpuPools({
    cores,
    blankInstances: 2,
    memoryBytes,
    log: () => undefined,
    onLoaded: () => void loads++,
  });
  const inputs = new Map<number, Float32Array>();
  for (const [index, { modelPath, modelBytes, width }] of heads.entries()) {
    inputs.set(width, new Float32Array(width).fill(value));
    pools.register(
      { key: String(index), modelPath, modelBytes, threads: 1, isolation },
      {
        instancesMin: 0,
        instancesMax: cores,
        queueMax: 10_000,
        batchMax: 1,
        batchDelayMs: 0,
        idleMs: 3_600_000,
        handlerTimeoutMs: 10_000,
        loadTimeoutMs: 60_000,
        inferTimeoutMs: 60_000,
      },
    );
  }
  return {
    get loads() {
      return loads;
    },
    async call(index, deadlineMs) {
      const head = heads[index];
      const input = head && inputs.get(head.width);
      if (head === undefined || input === undefined) throw new Error(`there is no function ${index}`);
      const tensors = [tensorOf('x', 'FP32', [1, head.width], input)];
      const options = deadlineMs === undefined ? {} : { deadlineMs };
      const result = await pools.invoke(String(index), { kind: 'tensors', tensors }, options).catch(unlessLate);
      if (result === undefined) return false;
      const { output } = result;
      const [tensor] = output.kind === 'tensors' ? output.tensors : [];
      check(index, head, tensor && (elements(tensor) as Float32Array));
      return true;
    },
    memoryBytes: () => pools.resources().memoryUsedBytes,
    [Symbol.asyncDispose]: () => pools.stop(0),
  };
}

/** Calls run in the order in which they come, in this very process: there is no way to it and back. */
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
    check(index, head, y?.data as Float32Array | undefined);
    return true;
  };
  const inTurn = async (before: Promise<boolean>, index: number, deadlineMs: number): Promise<boolean> => {
    await before.catch(() => undefined);
    return await run(index, deadlineMs);
  };
  return {
    loads: heads.length,
    call: (index, deadlineMs = Infinity) => (last = inTurn(last, index, deadlineMs)),
    memoryBytes: () => bytes,
    async [Symbol.asyncDispose]() {
      for (const session of sessions) await session.release();
    },
  };
}

function check(index: number, { factor }: Head, y: Float32Array | undefined): void {
  const wanted = value * factor;
  if (y === undefined || Math.abs((y[0] ?? Number.NaN) - wanted) > 1e-3 * wanted) {
    throw new Error(`function ${index} answered ${y?.[0]}, not ${wanted}`);
  }
}

function unlessLate(error: unknown): undefined {
  if (!(error instanceof CpuError) || (error.code !== 'deadline-passed' && error.code !== 'queue-full')) throw error;
}
