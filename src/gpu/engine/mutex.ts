import { Semaphore } from '../../tools/index.ts';
import { GpuError } from '../types.ts';

/** Admits one caller at a time; a caller whose run is cancelled while it waits gets {@link cancelled}. */
export class Mutex extends Semaphore {
  constructor() {
    super(1, cancelled);
  }
}

/** The result, unless the caller cancels first; the work itself goes on. */
export function orCancelled<Result>(result: Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
  if (signal === undefined) return result;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(cancelled());
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    result.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

export const cancelled = (): GpuError => new GpuError('cancelled', 'the run was cancelled by its caller');
