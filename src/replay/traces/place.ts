/** Turns counts by minute into invocations at instants. */
import type { Given, FunctionId } from '../../schedule/index.ts';
import { deriveSeed, MinstdRandom, Xoshiro } from '../generate/random.ts';
import type { Trace, TraceInvocation } from '../types.ts';
import { InvocationBuffer } from './invocation-buffer.ts';
import { foldByTotal, type MinuteTable } from './minute-table.ts';

export const minuteMs = 60_000;

/**
 * Where within its minute an invocation arrives. `uniform`: anywhere, independently. `even`: at equal distances, with a
 * phase for each function. `artifact`: a Poisson process for each function at its rate in that minute, drawn as the
 * DeepPlan artifact's client does (minstd_rand, restarted with seed 0 each minute), so that counts hold only on
 * average.
 */
export type MinutePlacement = 'uniform' | 'even' | 'artifact';

export const minutePlacements: readonly MinutePlacement[] = ['uniform', 'even', 'artifact'];

export interface PlaceOptions {
  readonly seed?: number;
  readonly placement?: MinutePlacement;
  /** Counts are multiplied by this. */
  readonly factor?: number;
  /**
   * For scaled counts. `random`: up or down so that the mean holds (seeded); `truncate`: down, as in the artifact,
   * which loses functions rarer than 1 / factor in a minute.
   */
  readonly rounding?: 'random' | 'truncate';
  /** Fold the functions onto so many, most invoked first. */
  readonly fold?: number;
  /** The first minute, and the one after the last; the trace begins with the first. */
  readonly fromMinute?: number;
  readonly toMinute?: number;
}

/** A trace over a table of counts. Memory: one minute's invocations. */
export function placeInMinutes(table: MinuteTable, options: PlaceOptions = {}): Trace {
  const { seed = 0, placement = 'uniform', factor = 1, rounding = 'random', fold } = options;
  const { fromMinute = 0, toMinute = table.minutes } = options;
  const folded = fold === undefined ? undefined : foldByTotal(table, fold);
  const functionNames = folded?.names ?? table.functionNames;
  const foldedIndex = folded?.foldedIndex;
  return {
    functionNames,
    *invocations(): Generator<TraceInvocation> {
      const buffer = new InvocationBuffer();
      const dense = placement === 'artifact' ? new Float64Array(functionNames.length) : undefined;
      for (let minute = fromMinute; minute < Math.min(toMinute, table.minutes); minute++) {
        buffer.clear();
        // Each minute has its own seed, so that a part of a trace is the same wherever reading begins.
        const random = new Xoshiro(deriveSeed(seed, minute));
        const startMs = (minute - fromMinute) * minuteMs;
        dense?.fill(0);
        table.readMinute(minute, (tableIndex, tableCount) => {
          const functionIndex = foldedIndex === undefined ? tableIndex : foldedIndex[tableIndex]!;
          let count = tableCount;
          if (factor !== 1) {
            const scaled = tableCount * factor;
            count = Math.floor(scaled);
            if (rounding === 'random' && random.uniform() < scaled - count) count++;
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

function placeEvenly(buffer: InvocationBuffer, startMs: number, functionIndex: Given<FunctionId>, count: number, phase: number) {
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

/** The factor that gives a table `ratePerS` on average over its minutes. */
export function factorForRate({ totals, minutes }: Pick<MinuteTable, 'totals' | 'minutes'>, ratePerS: number): number {
  const requests = totals.reduce((sum, total) => sum + total, 0);
  return requests === 0 ? 1 : (ratePerS * minutes * 60) / requests;
}
