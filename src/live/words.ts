/** Decisions as text for headers, `ps`, metrics and the page; there is no other wording. */
import { tooLargeText } from '../cpu/index.ts';
import type { CpuOffer, CpuPlace, PlaceId } from '../schedule/index.ts';
import type { GpuEviction, Why, WhyNot } from './types.ts';

export function msText(ms: number): string {
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
}

const placeWords = (place: PlaceId): string => (typeof place === 'number' ? `gpu${place}` : 'cpu pool');

/** Why the CPU pools can never run the function; undefined if they can. */
export function cpuRefusal(
  key: string,
  { bytes = 0, cores }: Pick<CpuOffer, 'bytes' | 'cores'>,
  place: Pick<CpuPlace, 'memoryBytes' | 'cores'>,
): string | undefined {
  if (bytes > place.memoryBytes) return tooLargeText(key, bytes, place.memoryBytes);
  return cores > place.cores ? `it takes ${cores} cores, and functions share ${place.cores} (cpu.cores)` : undefined;
}

/** Why an invocation did not get the place that it would have had otherwise. */
export interface Overflow {
  readonly from: 'gpu' | 'cpu';
  /** `cpu`, or what another place's calls are counted under: `worker`. */
  readonly to: string;
  /** One word for counting: `slo`, `bringing`, `earlier`, `failed`, or the function's state on the GPUs. */
  readonly reason: string;
  readonly words: string;
}

/**
 * @param whyNot undefined if it may use GPUs, null if the host drives none @returns undefined if it runs where it
 * always would
 */
export function overflowOf(why: Why, to: string, whyNot: WhyNot | undefined | null): Overflow | undefined {
  const { reason, refusals, otherPlace, otherMs, sloMs, keptOff = whyNot } = why;
  const from: Overflow['from'] = whyNot === null || (to !== 'cpu' && otherPlace === 'cpu') ? 'cpu' : 'gpu';
  const refusal = refusals.at(-1);
  if (refusal !== undefined) {
    if (from === 'cpu' && to === 'cpu') return undefined;
    return { from, to, reason: 'failed', words: refusal };
  }
  if (typeof otherPlace === 'number' || (otherPlace === 'cpu' && to !== 'cpu')) {
    const there = `${placeWords(otherPlace)} would finish ${isFinite(otherMs) ? `in ${msText(otherMs)}` : 'never'}`;
    if (reason === 'slo') return { from, to, reason: 'slo', words: `${there}, after the SLO of ${msText(sloMs)}` };
    if (reason === 'bringing')
      return { from, to, reason, words: `${there}, late as well; the calls behind it find its session here` };
    const here = why.predictedMs === undefined ? 'here nothing has run yet' : `here in ${msText(why.predictedMs)}`;
    return { from, to, reason: 'earlier', words: `${there}, ${here}` };
  }
  if (keptOff) return { from: 'gpu', to, ...keptOff };
  return to !== 'cpu' ? { from, to, reason: 'only', words: 'no other place takes it' } : undefined;
}

/** Causes of evictions from a GPU, as text for operators. */
export const evictionWords = {
  capacity: 'room for another function, all of it',
  trim: 'room for another function, a suffix of its layers',
  migration: 'another GPU has it too, and the room was needed',
  host: 'host memory was needed for another function',
  unload: 'it was unloaded, replaced or removed',
  'plan-changed': 'its plan has other layers now',
  'gpu-lost': 'the GPU process went down',
  'out-of-memory': 'the GPU had less room than was reckoned with',
  profiling: 'room for timing a function that is new here',
  'failed-run': 'a run of it failed, and what had arrived was not known',
} as const satisfies Record<GpuEviction['cause'], string>;
