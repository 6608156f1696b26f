/**
 * How much memory the processes of all functions use: measured from time to time, and corrected in between by loads and
 * releases. What a session's first runs will keep counts from its load on, until they have taken it. While a process loads,
 * it counts with what will stay: the peak of its load is within the part of the memory that loads have (load-gate.ts).
 * Counted here, it would evict sessions that have room once the load is over.
 */
import { processBytes } from '../../hardware/index.ts';
import { smoothed } from '../../tools/index.ts';
import type { Instance } from './instance.ts';

/** What it asks a process. */
export type MeasuredInstance = Pick<Instance, 'pid' | 'hasStarted' | 'isLoading' | 'sessions' | 'onDead'>;

/** Bytes of a process; undefined where the system does not tell. */
export type MeasureProcess = (pid: number) => Promise<number | undefined>;

/** Weight of the newest blank process among those before it. */
const newestWeight = 0.3;
/** Least time between two measurements after changes, and most time without one: handlers and runs use memory too. */
const changedMs = 200;
const unchangedMs = 5000;

interface Entry {
  measuredBytes: number;
  /** Loaded less released since. */
  sinceBytes: number;
  /** Bytes of it that were added during the measurement. */
  meanwhileBytes: number;
  /** What the first runs of its sessions will keep, as far as they have not taken it yet. */
  pendingBytes: number;
}

const bytesIn = ({ measuredBytes, sinceBytes, pendingBytes }: Entry): number =>
  Math.max(0, measuredBytes + sinceBytes) + pendingBytes;

export class MemoryLedger {
  readonly #entries = new Map<MeasuredInstance, Entry>();
  readonly #measureProcess: MeasureProcess;
  readonly #measured: () => void;
  #blankBytes = processBytes;
  #timer: NodeJS.Timeout | undefined;
  #dueMs = Infinity;
  #isMeasuring = false;
  #isStopped = false;

  /** @param measured called after every measurement */
  constructor(measureProcess: MeasureProcess, measured: () => void) {
    this.#measureProcess = measureProcess;
    this.#measured = measured;
    this.#arm(unchangedMs);
  }

  /** Expected size of a process that has just started, or has no session. */
  get blankBytes(): number {
    return this.#blankBytes;
  }

  get usedBytes(): number {
    let bytes = 0;
    for (const entry of this.#entries.values()) bytes += bytesIn(entry);
    return bytes;
  }

  bytesOf(instance: MeasuredInstance): number {
    const entry = this.#entries.get(instance);
    return entry === undefined ? 0 : bytesIn(entry);
  }

  add(instance: MeasuredInstance): void {
    const measuredBytes = this.#blankBytes;
    this.#entries.set(instance, { measuredBytes, sinceBytes: 0, meanwhileBytes: 0, pendingBytes: 0 });
    instance.onDead(() => this.#entries.delete(instance));
  }

  /** Something is being loaded (positive) or has been released (negative). */
  change(instance: MeasuredInstance, bytes: number): void {
    const entry = this.#entries.get(instance);
    if (entry === undefined) return;
    entry.sinceBytes += bytes;
    entry.meanwhileBytes += bytes;
    this.#arm(changedMs);
  }

  /** The first runs of a session there will keep so many bytes; negative: they have taken them, or will not any more. */
  pend(instance: MeasuredInstance, bytes: number): void {
    const entry = this.#entries.get(instance);
    if (entry !== undefined) entry.pendingBytes += bytes;
  }

  /** Its size as it was measured; undefined if something has changed since. */
  weightOf(instance: MeasuredInstance): number | undefined {
    const { measuredBytes, sinceBytes, pendingBytes } = this.#entries.get(instance) ?? {};
    return sinceBytes === 0 && pendingBytes === 0 ? measuredBytes : undefined;
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #arm(inMs: number): void {
    const dueMs = performance.now() + inMs;
    if (this.#isMeasuring || this.#isStopped || dueMs >= this.#dueMs) return;
    clearTimeout(this.#timer);
    this.#dueMs = dueMs;
    this.#timer = setTimeout(() => void this.#measure(), inMs);
    this.#timer.unref();
  }

  async #measure(): Promise<void> {
    this.#isMeasuring = true;
    // One after the other: the kernel walks the page tables of each, and delays its allocations meanwhile.
    for (const [instance, entry] of this.#entries) {
      // A process that is still starting will take what all of them do.
      if (!instance.hasStarted || instance.isLoading) continue;
      entry.meanwhileBytes = 0;
      const isEmpty = instance.sessions === 0;
      const bytes = await this.#measureProcess(instance.pid);
      if (bytes === undefined || instance.isLoading) continue;
      entry.measuredBytes = bytes;
      entry.sinceBytes = entry.meanwhileBytes;
      if (isEmpty && instance.sessions === 0)
        this.#blankBytes = Math.round(smoothed(this.#blankBytes, bytes, newestWeight));
    }
    this.#isMeasuring = false;
    this.#dueMs = Infinity;
    if (this.#isStopped) return;
    this.#arm(unchangedMs);
    this.#measured();
  }
}
