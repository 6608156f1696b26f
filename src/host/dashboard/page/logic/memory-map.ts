/** A memory as a strip of blocks to scale. */
import type { MemoryAnswer, Resident } from '../../api-types.ts';

/** Narrower blocks cannot be seen. */
const leastShare = 0.004;

/** The largest first, so that names have room; those too small to see are counted together. Shares are of the strip. */
export function memoryBlocks(residents: readonly Resident[], capacityBytes: number) {
  const sum = residents.reduce((bytes, resident) => bytes + resident.bytes, 0);
  const whole = Math.max(capacityBytes, sum, 1);
  const all = residents
    .toSorted((one, other) => other.bytes - one.bytes)
    .map((resident) => ({ resident, share: resident.bytes / whole }));
  const blocks = all.filter(({ share }) => share >= leastShare);
  const small = all.slice(blocks.length);
  return { blocks, small: { count: small.length, share: small.reduce((total, { share }) => total + share, 0) } };
}

/** 0 (just used) to 1 (unused for an hour or more), on a logarithmic scale; blocks fade by it. */
export function idleness(lastUseMs: number, nowMs: number): number {
  if (lastUseMs <= 0) return 1;
  const seconds = Math.max(1, (nowMs - lastUseMs) / 1000);
  return Math.min(1, Math.log(seconds) / Math.log(3600));
}

/** What is used of a limit beyond this share is full: the next load evicts. */
export const fullShare = 0.95;

/** Parts that the host counts and keeps to their limit. Processes are measured: what is set aside for them ends none. */
const limited: ReadonlySet<string> = new Set(['sessions', 'pinned', 'inFlight']);
type Part = MemoryAnswer['host']['parts'][number];

export const hasLimit = ({ part }: Pick<Part, 'part'>): boolean => limited.has(part);

export const isFull = ({ part, bytes, usedBytes }: Pick<Part, 'part' | 'bytes' | 'usedBytes'>): boolean =>
  hasLimit({ part }) && usedBytes > fullShare * bytes;
