/** What host memory holds when a replay begins: as on a host that has served the load for some time. */
import type { Given, FunctionId } from '../schedule/index.ts';
import type { SimulatedHostTier } from './simulator-options.ts';
import type { Trace } from './types.ts';

/** Calls that are read to find popular functions. */
const callsMax = 100_000;

/**
 * Functions with the most calls in the warm-up for each byte, then those that the trace names first, as many as there is
 * room for. No later call is looked at: a host knows none.
 */
export function filledStart(
  trace: Trace,
  { capacityBytes, warmup, bytesOf }: FilledStartOptions,
): NonNullable<SimulatedHostTier['filledWith']> {
  const calls = new Map<number, number>();
  let all = 0;
  for (const { functionIndex } of trace.invocations()) {
    if (all === Math.min(warmup, callsMax)) break;
    calls.set(functionIndex, (calls.get(functionIndex) ?? 0) + 1);
    all++;
  }
  const valueOf = (functionIndex: Given<FunctionId>): number =>
    (calls.get(functionIndex) ?? 0) / Math.max(1, bytesOf(functionIndex));
  let leftBytes = capacityBytes;
  return trace.functionNames
    .map((_, functionIndex) => functionIndex)
    .sort((one, other) => valueOf(other) - valueOf(one) || one - other)
    .flatMap((functionIndex) => {
      const bytes = bytesOf(functionIndex);
      if (bytes > leftBytes) return [];
      leftBytes -= bytes;
      return [{ functionIndex, share: (calls.get(functionIndex) ?? 0) / Math.max(1, all) }];
    });
}

export interface FilledStartOptions {
  readonly capacityBytes: number;
  /** Calls of the trace that are not measured. */
  readonly warmup: number;
  readonly bytesOf: (functionIndex: Given<FunctionId>) => number;
}
