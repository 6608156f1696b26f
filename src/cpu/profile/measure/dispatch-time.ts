/** How long a pool takes to hand a request to a free instance. */
import type { ModelOpening } from '../../../onnx/index.ts';
import type { Tensor } from '../../../tensor/index.ts';
import { given } from '../../../tools/index.ts';
import { createCpuPools } from '../../pools.ts';
import { median } from './samples.ts';

export interface DispatchTimeOptions {
  readonly modelPath: string;
  readonly opening: ModelOpening | undefined;
  /** The inputs of one request. */
  readonly tensors: readonly Tensor[];
  readonly samples: number;
  readonly timeoutMs: number;
  readonly log: (line: string) => void;
  readonly signal: AbortSignal | undefined;
}

const key = 'measured@1';
const warmRuns = 5;

/**
 * Milliseconds from a request's arrival at a pool until its instance has it, with no other load: requests of one turn
 * of the event loop are collected first. The median, from a pool with one instance of one thread. Rejects with
 * CpuError.
 */
export async function measureDispatchMs(options: DispatchTimeOptions): Promise<number> {
  const { modelPath, opening, tensors, samples, timeoutMs, log, signal } = options;
  const pools = createCpuPools({
    cores: 1,
    blankInstances: 0,
    memoryBytes: Infinity,
    log: (_pid, _key, line) => log(line),
  });

  const stop = (): void => void pools.stop(0);
  signal?.addEventListener('abort', stop);
  try {
    pools.register(
      { key, modelPath, threads: 1, ...given({ opening }) },
      {
        instancesMin: 0,
        instancesMax: 1,
        batchMax: 1,
        batchDelayMs: 0,
        idleMs: timeoutMs,
        handlerTimeoutMs: timeoutMs,
        loadTimeoutMs: timeoutMs,
        inferTimeoutMs: timeoutMs,
      },
    );
    const groups = [{ instances: 1, threads: 1, batch: 1 }];
    await pools.configure(key, { groups, batchTimeoutMs: 0 }, 'measurement');
    const times: number[] = [];
    for (let run = 0; run < warmRuns + samples; run++) {
      const { timings } = await pools.invoke(key, { kind: 'tensors', tensors });
      if (run >= warmRuns) times.push(timings.queueMs);
    }
    return median(times);
  } finally {
    signal?.removeEventListener('abort', stop);
    await pools.stop(0);
  }
}
