import type { InvocationId } from './ids.ts';
import type { ServedFunction } from './function.ts';
import type { Decision, Join, PlaceId, Start } from './types.ts';

/** As `Decision`, reused for each invocation of the same number. */
export type OwnDecision = { -readonly [Field in keyof Decision]: Decision[Field] };

/** The settings of an invocation that are not its function's. */
export interface OwnSettings {
  readonly sloMs?: number | undefined;
  readonly priority?: number | undefined;
  readonly isForGpus?: boolean | undefined;
  readonly isKeptOffGpus?: boolean;
  readonly join?: Join | undefined;
}

/** What the scheduler knows of an invocation. The object is used again by the next one of the same number. */
export class Invocation {
  readonly number: InvocationId;
  fn: ServedFunction;
  state: 'waiting' | 'running' | 'ended' = 'ended';
  /** Where it waits, runs, or was last. */
  place: PlaceId | undefined = undefined;
  /** What its function had on the GPU when a load was ordered for it; undefined where none was. */
  start: Start | undefined = undefined;
  /** Something of its function was neither on its GPU nor in host memory when it came there. */
  waitsForDisk = false;
  arrivalMs = NaN;
  /** Counts arrivals. */
  sequence = 0;
  /** Calls of its function with the same key may share its run; '': none may. */
  joinKey = '';
  rows = 1;
  readonly decision: OwnDecision = { reason: 'only', chosenEndMs: NaN, otherPlace: undefined, otherEndMs: NaN };
  /** In the line of a GPU: its neighbours in the list of its function, its sort key there, and in which list it is. */
  next: Invocation | undefined = undefined;
  previous: Invocation | undefined = undefined;
  key = NaN;
  isLate = false;
  /** In the line of a place beside the GPUs: its latest start in time, and its share. */
  latestStartMs = NaN;
  shareMs = NaN;
  /** The priority with which it joined there. */
  joinedPriority = NaN;
  /** At the best of those places, its predicted start; once it runs there, its predicted end. */
  predictedMs = NaN;
  /** NaN: the function's. */
  #ownSloMs = NaN;
  #ownPriority = NaN;
  #isForGpus = false;
  #isKeptOff = false;
  #isLetThrough = false;

  constructor(number: InvocationId, fn: ServedFunction) {
    this.number = number;
    this.fn = fn;
  }

  /** A new invocation takes the number. */
  arrives(fn: ServedFunction, own: OwnSettings, sequence: number, nowMs: number): void {
    const { isForGpus = false, isKeptOffGpus = false } = own;
    this.fn = fn;
    this.arrivalMs = nowMs;
    this.sequence = sequence;
    this.#ownSloMs = own.sloMs ?? (isForGpus ? Infinity : NaN);
    this.#ownPriority = own.priority ?? NaN;
    this.#isForGpus = isForGpus;
    this.#isKeptOff = isKeptOffGpus && !isForGpus;
    this.#isLetThrough = false;
    this.waitsForDisk = false;
    this.setJoin(own.join);
  }

  setJoin(join: Join | undefined): void {
    this.joinKey = join?.key ?? '';
    this.rows = join?.rows ?? 1;
  }

  /** Whether its SLO or priority is not its function's. */
  get isSpecial(): boolean {
    return !Number.isNaN(this.#ownSloMs) || !Number.isNaN(this.#ownPriority);
  }

  /** Whether it must not run on a GPU. */
  get isKeptOff(): boolean {
    return this.#isKeptOff;
  }

  /** Whether a place beside the GPUs may run it. */
  get mayGoBeside(): boolean {
    return !this.#isForGpus;
  }

  /** Its own, or its function's; Infinity: it has none. */
  get sloMs(): number {
    const own = this.#ownSloMs;
    return Number.isNaN(own) ? this.fn.sheet.sloMs : own;
  }

  /** When it has to be answered. */
  get deadlineMs(): number {
    return this.arrivalMs + this.sloMs;
  }

  /** By when it has to start to be in order: its deadline, or without one the policy's bound on waiting. */
  get dueMs(): number {
    const { deadlineMs } = this;
    return deadlineMs < Infinity ? deadlineMs : this.arrivalMs + this.fn.policy.waitBoundMs;
  }

  get priority(): number {
    const own = this.#ownPriority;
    return Number.isNaN(own) ? this.fn.sheet.priority : own;
  }

  /** It is let in though it is late; see bringing.ts. */
  letThrough(): void {
    this.#isLetThrough = true;
  }

  /** Whether it is refused once it is late: it has an SLO, and its function sheds. */
  get isShedWhenLate(): boolean {
    return this.fn.sheds && !this.#isLetThrough && this.deadlineMs < Infinity;
  }
}
