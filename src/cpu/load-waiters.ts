/** Who waits for an instance, and whether one without the model would do. */
import type { TicketQueue } from './queue.ts';
import type { CpuError, InstanceSpec } from './types.ts';

export interface LoadWaiter {
  readonly resolve: () => void;
  readonly reject: (error: CpuError) => void;
  /** The handler alone is enough for it. */
  readonly handlerOnly: boolean;
}

/** Whether all who wait have their model run elsewhere: loading it here as well would cost them time, and memory. */
export function handlerSuffices(
  { handlerPath }: InstanceSpec,
  queue: TicketQueue,
  loadWaiters: readonly LoadWaiter[],
): boolean {
  if (handlerPath === undefined || queue.length + loadWaiters.length === 0) return false;
  if (loadWaiters.some(({ handlerOnly }) => !handlerOnly)) return false;
  for (const { runModel } of queue) if (runModel === undefined) return false;
  return true;
}
