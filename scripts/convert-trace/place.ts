/** Turns counts by minute into invocations at instants. */
import { deriveSeed, Xoshiro } from '../../src/replay/generate/random.ts';
import { InvocationBuffer } from '../../src/replay/traces/invocation-buffer.ts';
import { foldByTotal, minuteMs } from '../../src/replay/traces/transform.ts';
import type { Trace, TraceInvocation } from '../../src/replay/types.ts';
import type { FunctionId, Given } from '../../src/schedule/index.ts';
import { MinstdRandom } from './minstd.ts';
import type { MinuteTable } from './minute-table.ts';

/**
 * Where within its minute an invocation arrives. `uniform`: anywhere, independently. `even`: at equal distances, with a
 * phase for each function.
 */
export type MinutePlacement = 'uniform' | 'even';

export const minutePlacements: readonly MinutePlacement[] = ['uniform', 'even'];

export interface PlaceOptions {
  readonly seed?: number;
  readonly placement?: MinutePlacement;
  /** Only the minutes from that of this instant on, */
  readonly fromMs?: number;
  /** and up to that of this one. The trace begins with the first. */
  readonly toMs?: number;
  /** Scale to so many requests per second on average over the window. Counts go up or down so that the mean holds. */
  readonly ratePerS?: number;
  /** Fold the functions onto so many, most invoked first. */
  readonly functions?: number;
  /**
   * As the DeepPlan artifact's client does: the rate is the mean over the whole file, not the window, and scaled counts
   * are rounded down, which loses functions rarer than 1 / factor in a minute. Arrivals are a Poisson process for each
   * function at its rate in that minute, drawn with minstd_rand, restarted with seed 0 each minute, so that counts hold
   * only on average.
   */
  readonly asArtifact?: boolean;
}

/** A trace over a table of counts. Memory: one minute's invocations. */
export function placeTable(table: MinuteTable, options: PlaceOptions = {}): Trace {
  const { seed = 0, placement = 'uniform', fromMs = 0, toMs = Infinity, ratePerS, asArtifact = false } = options;
  const fromMinute = Math.min(table.minutes, Math.floor(fromMs / minuteMs));
  const toMinute = Math.min(table.minutes, Math.ceil(toMs / minuteMs));
  const factor =
    ratePerS === undefined ? 1 : ratePerS / (asArtifact ? rateOf(table) : rateOf(table, fromMinute, toMinute));
  const folded =
    options.functions === undefined ? undefined : foldByTotal(table.functionNames, table.totals, options.functions);
  const functionNames = folded?.names ?? table.functionNames;
  return {
    functionNames,
    *invocations(): Generator<TraceInvocation> {
      const buffer = new InvocationBuffer();
      const dense = asArtifact ? new Float64Array(functionNames.length) : undefined;
      for (let minute = fromMinute; minute < toMinute; minute++) {
        buffer.clear();
        // Each minute has its own seed, so that a part of a trace is the same wherever reading begins.
        const random = new Xoshiro(deriveSeed(seed, minute));
        const startMs = (minute - fromMinute) * minuteMs;
        dense?.fill(0);
        table.readMinute(minute, (tableIndex, tableCount) => {
          const functionIndex = folded?.foldedIndex[tableIndex] ?? tableIndex;
          let count = tableCount;
          if (factor !== 1) {
            const scaled = tableCount * factor;
            count = Math.floor(scaled);
            if (!asArtifact && random.uniform() < scaled - count) count++;
          }
          if (dense !== undefined) dense[functionIndex]! += count;
          else if (placement === 'even') placeEvenly(buffer, startMs, functionIndex, count, random.uniform());
          else {
            for (let index = 0; index < count; index++) {
              buffer.push(startMs + random.uniform() * minuteMs, functionIndex);
            }
          }
        });
        if (dense !== undefined) placeAsArtifact(buffer, startMs, dense);
        buffer.sort();
        for (let index = 0; index < buffer.length; index++) {
          yield buffer.at(index);
        }
      }
    },
  };
}

function placeEvenly(
  buffer: InvocationBuffer,
  startMs: number,
  functionIndex: Given<FunctionId>,
  count: number,
  phase: number,
) {
  for (let index = 0; index < count; index++) {
    buffer.push(startMs + ((index + phase) / count) * minuteMs, functionIndex);
  }
}

function placeAsArtifact(buffer: InvocationBuffer, startMs: number, counts: Float64Array): void {
  const random = new MinstdRandom(0);
  for (let functionIndex = 0; functionIndex < counts.length; functionIndex++) {
    const ratePerS = counts[functionIndex]! / 60;
    // A function without invocations draws once too: its first interval is infinite.
    for (let atS = random.exponential(ratePerS); atS < 60; atS += random.exponential(ratePerS)) {
      buffer.push(startMs + atS * 1000, functionIndex);
    }
  }
}

/** Requests per second on average over a part of the minutes; Infinity without any, so that a scaled count stays 0. */
function rateOf(table: MinuteTable, fromMinute = 0, toMinute = table.minutes): number {
  let requests = 0;
  for (let minute = fromMinute; minute < toMinute; minute++) {
    table.readMinute(minute, (_, count) => {
      requests += count;
    });
  }
  return requests === 0 ? Infinity : requests / ((toMinute - fromMinute) * 60);
}
