import { Semaphore } from '../../tools/index.ts';
import { GpuError } from '../types.ts';

/** Admits one caller at a time; a caller whose run is cancelled while it waits gets {@link cancelled}. */
export class Mutex extends Semaphore {
  constructor() {
    super(1, cancelled);
  }
}

/** The result, unless the caller cancels first; the work itself goes on. */
export function orCancelled<Result>(
  result: Promise<Result>,
  signal: AbortSignal | undefined,
  unwanted?: (result: Result) => void,
): Promise<Result> {
  if (signal === undefined) return result;
  return new Promise((resolve, reject) => {
    let isOver = false;
    const abort = (): void => {
      if (isOver) return;
      isOver = true;
      reject(cancelled());
    };
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    const over = (end: () => void, orElse: () => void): void => {
      signal.removeEventListener('abort', abort);
      if (isOver) orElse();
      else end();
      isOver = true;
    };
    result.then(
      (value) =>
        over(
          () => resolve(value),
          () => unwanted?.(value),
        ),
      (error: unknown) =>
        over(
          () => reject(error),
          () => undefined,
        ),
    );
  });
}

export const cancelled = (): GpuError => new GpuError('cancelled', 'the run was cancelled by its caller');
