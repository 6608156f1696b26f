import { coreWaitMs } from '../../tools/index.ts';

/** What a process has read from disk, and how long it waited for that. */
export interface DiskRead {
  readonly bytes: number;
  readonly ms: number;
}

/** What kept a process from its work on a message. */
export interface Waits {
  /** How long others had the cores. */
  readonly coreMs: number;
  /** Undefined if it read hardly anything. */
  readonly disk: DiskRead | undefined;
}

interface Reading {
  readonly coreMs: number;
  readonly usedMs: number;
  readonly blocks: number;
}

/** Readings take some microseconds, as long as a small model's run: shorter messages do without. */
const tookMsMin = 1;
/** One read ahead of the system. */
const readBytesMin = 128 * 1024;
/** Linux counts what is read in these. */
const blockBytes = 512;

/**
 * Measures the main thread, which loads and runs models. Neither wait is ever more than what was measured: time of
 * messages without a reading, and of other threads, is subtracted from both.
 */
export class WaitMeter {
  readonly #read: () => Reading;
  #before: Reading;
  #unreadMs = 0;

  constructor(read = readingNow) {
    this.#read = read;
    this.#before = read();
  }

  /** @param tookMs the message, since it came or was resumed */
  of(tookMs: number): Waits {
    if (tookMs < tookMsMin) {
      this.#unreadMs += tookMs;
      return { coreMs: 0, disk: undefined };
    }
    const [before, now] = [this.#before, this.#read()];
    const waitedMs = now.coreMs - before.coreMs;
    const coreMs = Math.min(tookMs, Math.max(0, waitedMs - this.#unreadMs));
    const bytes = (now.blocks - before.blocks) * blockBytes;
    const diskMs = tookMs - waitedMs - (now.usedMs - before.usedMs);
    this.#before = now;
    this.#unreadMs = 0;
    return { coreMs, disk: bytes < readBytesMin || diskMs <= 0 ? undefined : { bytes, ms: diskMs } };
  }
}

function readingNow(): Reading {
  const { userCPUTime, systemCPUTime, fsRead } = process.resourceUsage();
  return { coreMs: coreWaitMs(), usedMs: (userCPUTime + systemCPUTime) / 1000, blocks: fsRead };
}
