/** What ran at once, found from when runs began and ended. */
import { getOrMake } from '../../../tools/index.ts';

export interface Run {
  /** When its request came. */
  readonly arrivedMs: number;
  readonly fromMs: number;
  readonly toMs: number;
}

/** Runs that began alike. */
export interface AlikeRuns {
  /** Milliseconds of all of them while 1, 2, ... ran at once. */
  readonly spentMs: number[];
  count: number;
  /** An instance was free when their requests came. */
  readonly wasIdle: boolean;
}

/** Each is compared with all others at work: more of them say little more. */
export const runsMax = 4000;

/**
 * Runs by how many they were as they began, at most `most` at once, and by whether their requests had waited; in so many
 * slices of time, by when they ended.
 */
export function alikeRuns(runs: readonly Run[], most: number, slices: number): AlikeRuns[][] {
  const found = Array.from({ length: slices }, () => new Map<number, AlikeRuns>());
  const begins = runs.toSorted((a, b) => a.fromMs - b.fromMs);
  const ends = runs.toSorted((a, b) => a.toMs - b.toMs);
  const beginsMs = begins.map(({ fromMs }) => fromMs);
  const endsMs = ends.map(({ toMs }) => toMs);
  const [fromMs, toMs] = [beginsMs[0] ?? 0, endsMs.at(-1) ?? 0];
  const atWork = new Map<Run, AlikeRuns>();
  let nowMs = fromMs;
  let ended = 0;
  const goOn = (untilMs: number): void => {
    const index = Math.min(most, atWork.size) - 1;
    for (const { spentMs } of atWork.values()) spentMs[index]! += untilMs - nowMs;
    nowMs = untilMs;
  };
  const endUntil = (untilMs: number): void => {
    for (; ended < ends.length && endsMs[ended]! <= untilMs; ended++) {
      goOn(endsMs[ended]!);
      atWork.delete(ends[ended]!);
    }
  };
  for (const run of begins) {
    endUntil(run.fromMs);
    goOn(run.fromMs);
    const slice = Math.min(slices - 1, Math.floor(((run.toMs - fromMs) / (toMs - fromMs)) * slices)) || 0;
    const wasIdle = countBelow(beginsMs, run.arrivedMs) - countBelow(endsMs, run.arrivedMs) < most;
    const key = 2 * Math.min(most, atWork.size + 1) + Number(wasIdle);
    const spentMs = Array.from({ length: most }, () => 0);
    const group = getOrMake(found[slice]!, key, () => ({ spentMs, count: 0, wasIdle }));
    group.count++;
    if (run.toMs > run.fromMs) atWork.set(run, group);
  }
  endUntil(Infinity);
  return found.map((groups) => Array.from(groups.values()));
}

/** How many of the rising values are less. */
function countBelow(rising: readonly number[], value: number): number {
  let [low, high] = [0, rising.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (rising[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
