/** A memory as a strip of blocks to scale. */
import type { MemoryAnswer, Resident } from '../../api-types.ts';

export interface Block {
  readonly resident: Resident;
  /** Start of the block, as a share of the whole strip. */
  readonly from: number;
  readonly share: number;
}

/** The largest first, so that names have room; blocks too small to see are one block at the end. */
export function memoryBlocks(
  residents: readonly Resident[],
  capacityBytes: number,
  leastShare = 0.004,
): { readonly blocks: readonly Block[]; readonly small: { count: number; from: number; share: number } } {
  const whole = Math.max(
    capacityBytes,
    residents.reduce((sum, { bytes }) => sum + bytes, 0),
    1,
  );
  const blocks: Block[] = [];
  let from = 0;
  const small = { count: 0, from: 0, share: 0 };
  for (const resident of residents.toSorted((one, other) => other.bytes - one.bytes)) {
    const share = resident.bytes / whole;
    if (share < leastShare) {
      small.count++;
      small.share += share;
      continue;
    }
    blocks.push({ resident, from, share });
    from += share;
  }
  small.from = from;
  return { blocks, small };
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
