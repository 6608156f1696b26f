/** What host memory keeps books of: blocks, the functions that have them, and reads from disk. */
import type { ServedFunction } from './function.ts';
import type { Numbered } from './heap.ts';
import type { HostBlock } from './offer.ts';

export class Block implements HostBlock {
  readonly number: number;
  readonly id: string;
  readonly bytes: number;
  readonly isExecuted: boolean;
  readonly layers: readonly number[];
  /** No other function can have it. */
  readonly isOwn: boolean;
  readonly users = new Set<Copy>();
  state: 'on disk' | 'read' | 'here' = 'on disk';

  constructor(number: number, id: string, given: HostBlock) {
    const { bytes, isExecuted = false, layers = [] } = given;
    this.number = number;
    this.id = id;
    this.bytes = bytes;
    this.isExecuted = isExecuted;
    this.layers = layers;
    this.isOwn = given.id === undefined;
  }
}

/** A read that is ordered. */
export interface Read {
  readonly blocks: readonly Block[];
  readonly bytes: number;
  readonly ms: number;
  /** How long a load may run beside it: it then ends with the read, and its link carries nothing else for no longer. */
  readonly overlapMs: number;
  endMs: number;
  isLoadable: boolean;
}

/** What host memory knows of a function. */
export class Copy implements Numbered {
  readonly fn: ServedFunction;
  blocks: readonly Block[] = [];
  /** As its sheet names its blocks. */
  given: readonly HostBlock[] = [];
  /** Its sheet divides the same content into other blocks since the read under way was ordered. */
  isOutdated = false;
  /** Blocks of a former offer sheet: they go when nothing of the function runs or loads. */
  former: readonly Block[] = [];
  /** How many of its blocks are not here. */
  missing = 0;
  bytes = 0;
  executedBytes = 0;
  read: Read | undefined = undefined;
  /** When it is read again, after it could not be, or the place had no room for it though nothing could go. */
  pausedUntilMs = 0;
  /** How often the place holds it. */
  holds = 0;
  /** Whether the latest read found its file in the page cache. */
  wasCached = false;

  constructor(fn: ServedFunction) {
    this.fn = fn;
  }

  get number(): number {
    return this.fn.number;
  }

  /** Nothing of it is ever on a GPU. */
  get isExecutedWhole(): boolean {
    return this.bytes > 0 && this.executedBytes === this.bytes;
  }

  /** Whether a run cannot begin while some of it is being read: then it could only wait, in a lane. */
  get needsAll(): boolean {
    return this.isExecutedWhole || (this.isOutdated && this.given.some(({ isExecuted }) => isExecuted === true));
  }

  /** Bytes that are neither here nor being read. */
  get onDiskBytes(): number {
    let bytes = 0;
    for (const block of this.blocks) if (block.state === 'on disk') bytes += block.bytes;
    return bytes;
  }
}

export const sumOf = (blocks: readonly Block[]): number => blocks.reduce((sum, { bytes }) => sum + bytes, 0);
