/** Rows where host memory holds a part of the functions and a slow disk the rest, and what can be reached at most. */
import { Xoshiro } from '../../src/replay/index.ts';
import type { TraceOf } from './loads.ts';

export interface DiskScene {
  readonly functionNames: readonly string[];
  readonly ratePerS: number;
  readonly requests: number;
  /** By phase and function, the share of the calls. Phases are equally long. */
  readonly shares: readonly (readonly number[])[];
  readonly phaseMs: number;
  /** Bytes of each function. */
  readonly bytes: number;
  readonly hostBytes: number;
  readonly gpuBytes: number;
  readonly diskGBps: number;
  readonly sloMs: number;
  /** Whether the most called functions are in host memory when the load begins. */
  readonly isFilled: boolean;
}

/**
 * The largest share of calls in time without knowing which calls come, or what the next phase asks for:
 *
 *     1/T * integral over t from 0 to T of the sum of share(f, t) over the functions f that are in memory at t
 *
 * In memory are at most (host bytes + GPU bytes) / bytes functions: a GPU may have what host memory has not. At the start
 * these are the most called ones of the first phase that fit into host memory, or none. The disk reads one function
 * every bytes / disk rate, always the most called absent one of the phase, in place of the least called one, which
 * goes when the other is there, if there is no room and that is called less. A call that comes at most an SLO before its function's read ends is in time.
 *
 * @throws RangeError if a read takes no longer than the SLO
 */
export function diskBound(scene: DiskScene): number {
  const { phaseMs, bytes, hostBytes, gpuBytes, diskGBps, sloMs, isFilled } = scene;
  const places = Math.floor((hostBytes + gpuBytes) / bytes);
  const readMs = bytes / (diskGBps * 1e6);
  if (readMs <= sloMs) throw new RangeError(`a read of ${readMs} ms is within the SLO: each call could have its own`);
  const lengthMs = (scene.requests / scene.ratePerS) * 1000;
  const phaseAt = (ms: number): readonly number[] => sharesAt(scene, ms);
  const inMemory = new Set(isFilled ? mostCalled(scene) : []);
  let inTime = 0;
  let atMs = 0;
  let next: { readonly functionIndex: number; readonly endMs: number } | undefined;
  while (atMs < lengthMs) {
    const share = phaseAt(atMs);
    if (next === undefined) {
      const absent = byShare(share).find((each) => !inMemory.has(each));
      const isWorth =
        absent !== undefined && (inMemory.size < places || share[leastOf(share, inMemory)]! < share[absent]!);
      if (isWorth) next = { functionIndex: absent, endMs: atMs + readMs };
    }
    const phaseEndMs = (Math.floor(atMs / phaseMs) + 1) * phaseMs;
    const untilMs = Math.min(lengthMs, phaseEndMs, next?.endMs ?? Infinity);
    let held = 0;
    for (const each of inMemory) held += share[each]!;
    inTime += held * (untilMs - atMs);
    if (next !== undefined) {
      const waitedMs = Math.max(0, untilMs - Math.max(atMs, next.endMs - sloMs));
      inTime += share[next.functionIndex]! * waitedMs;
      if (untilMs >= next.endMs) {
        if (inMemory.size >= places) inMemory.delete(leastOf(share, inMemory));
        inMemory.add(next.functionIndex);
        next = undefined;
      }
    }
    atMs = untilMs;
  }
  return inTime / lengthMs;
}

const sharesAt = ({ shares, phaseMs }: DiskScene, ms: number): readonly number[] =>
  shares[Math.floor(ms / phaseMs) % shares.length]!;

const byShare = (shares: readonly number[]): number[] =>
  shares.map((_, index) => index).sort((one, other) => shares[other]! - shares[one]!);

const leastOf = (shares: readonly number[], among: ReadonlySet<number>): number =>
  [...among].reduce((one, other) => (shares[other]! < shares[one]! ? other : one));

/** What a filled host memory holds when the load begins. */
export const filledWith = (scene: DiskScene) =>
  mostCalled(scene).map((functionIndex) => ({ functionIndex, share: scene.shares[0]![functionIndex]! }));

const mostCalled = (scene: DiskScene): number[] =>
  byShare(scene.shares[0]!).slice(0, Math.floor(scene.hostBytes / scene.bytes));

export function diskTrace(scene: DiskScene): TraceOf {
  const sums = scene.shares.map((shares) => {
    let sum = 0;
    return shares.map((share) => (sum += share));
  });
  return (seed) => ({
    functionNames: scene.functionNames,
    *invocations() {
      const random = new Xoshiro(seed);
      let arrivalMs = 0;
      for (let call = 0; call < scene.requests; call++) {
        arrivalMs += random.exponential(scene.ratePerS) * 1000;
        const upTo = sums[Math.floor(arrivalMs / scene.phaseMs) % sums.length]!;
        const drawn = random.uniform() * upTo.at(-1)!;
        yield { arrivalMs, functionIndex: upTo.findIndex((sum) => drawn < sum) };
      }
    },
  });
}

/** Function f gets the calls of floor(n u^3) = f, u uniform: the first of 200 a sixth, the last of them 0.17%. */
export const cubeShares = (functions: number): number[] =>
  Array.from({ length: functions }, (_, f) => Math.cbrt((f + 1) / functions) - Math.cbrt(f / functions));

/** The same shares, for functions that are so many further on. */
export const rotated = (shares: readonly number[], by: number): number[] =>
  shares.map((_, f) => shares[(f + shares.length - (by % shares.length)) % shares.length]!);
