import { Semaphore } from '../../tools/index.ts';
import { GpuError } from '../types.ts';

/** Admits one caller at a time; a caller whose run is cancelled while it waits gets {@link cancelled}. */
export class Mutex extends Semaphore {
  constructor() {
    super(1, cancelled);
  }
}

/** The result, unless the caller cancels first; the work itself goes on, and `unwanted` gets what comes of it. */
export async function orCancelled<Result>(
  result: Promise<Result>,
  signal: AbortSignal | undefined,
  unwanted?: (result: Result) => void,
): Promise<Result> {
  if (signal === undefined) return await result;
  let abort!: () => void;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(cancelled());
  });
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  try {
    return await Promise.race([aborted, result]);
  } catch (error) {
    result.then(unwanted, () => undefined);
    throw error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

export const cancelled = (): GpuError => new GpuError('cancelled', 'the run was cancelled by its caller');
