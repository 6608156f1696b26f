/** What the scheduler knows of each invocation, in columns by its number: an event touches few columns. */
import { grown } from './columns.ts';
import { WaitingColumns } from './lines.ts';
import type { OfferSheet } from './offer.ts';
import type { Policy } from './policy.ts';
import { noPlace, type Decision, type Join } from './types.ts';

/** State of an invocation. `aside`: it waits for the CPU or the workers. */
export const state = { ended: 0, waiting: 1, running: 2, offloaded: 3, aside: 4 } as const;

/** Where an invocation may run: at any place, on GPUs alone, or at the others alone. */
export const only = { any: 0, gpus: 1, others: 2 } as const;

/** What an invocation's function had on the GPU: as `starts` of dispatch.ts, or this until a run or load is ordered. */
export const undecided = -1;

/** As `Decision`, reused for each invocation of the same number. */
export type OwnDecision = { -readonly [Field in keyof Decision]: Decision[Field] };

export class Invocations {
  readonly policy: Policy;
  /** Whether all invocations so far had the same SLO and priority: then arrival order is deadline order. */
  isUniform = true;
  #commonSloMs = NaN;
  /** Shared by the lines in which they wait. */
  protected readonly waitingColumns = new WaitingColumns();
  invocationState = new Int32Array(64);
  functionOf = new Int32Array(64);
  readonly decisions: OwnDecision[] = [];
  /** A place. */
  gpuOf = new Int32Array(64);
  start = new Int32Array(64);
  arrivalMs = new Float64Array(64);
  sequence = new Float64Array(64);
  /** Calls of its function with the same key may share its run; '': none may. */
  readonly joinKeys: string[] = [];
  rows = new Int32Array(64);
  /** NaN: the function's. */
  #ownSloMs = new Float64Array(64);
  #ownPriority = new Float64Array(64);
  #only = new Int32Array(64);
  /** Let in though it is late, see bringing.ts. */
  #isLetThrough = new Int32Array(64);

  constructor(policy: Policy) {
    this.policy = policy;
  }

  growInvocations(count: number): void {
    this.invocationState = grown(this.invocationState, count);
    this.functionOf = grown(this.functionOf, count);
    while (this.decisions.length < count)
      this.decisions.push({ reason: 'only', chosenEndMs: 0, otherPlace: noPlace, otherEndMs: Infinity });
    this.gpuOf = grown(this.gpuOf, count);
    this.start = grown(this.start, count);
    this.arrivalMs = grown(this.arrivalMs, count);
    this.sequence = grown(this.sequence, count);
    while (this.joinKeys.length < count) this.joinKeys.push('');
    this.rows = grown(this.rows, count);
    this.#ownSloMs = grown(this.#ownSloMs, count);
    this.#ownPriority = grown(this.#ownPriority, count);
    this.#only = grown(this.#only, count);
    this.#isLetThrough = grown(this.#isLetThrough, count);
    this.waitingColumns.grow(this.invocationState.length);
  }

  /** The invocation's own SLO and priority; NaN: those of its function. */
  setOwn(invocation: number, sloMs: number, priority: number, where: number): void {
    this.#only[invocation] = where;
    this.#isLetThrough[invocation] = 0;
    if (!Number.isNaN(sloMs) || !Number.isNaN(priority)) this.isUniform = false;
    this.#ownSloMs[invocation] = sloMs;
    this.#ownPriority[invocation] = priority;
  }

  setJoin(invocation: number, join: Join | undefined): void {
    this.joinKeys[invocation] = join?.key ?? '';
    this.rows[invocation] = join?.rows ?? 1;
  }

  /** For a function that is new, or whose SLO or priority changed. */
  setCommon({ sloMs, priority }: OfferSheet): void {
    if (Number.isNaN(this.#commonSloMs)) this.#commonSloMs = sloMs;
    if (this.#commonSloMs !== sloMs || priority !== 0) this.isUniform = false;
  }

  /** Whether the invocation must not run on a GPU. */
  isKeptOff(invocation: number): boolean {
    return this.#only[invocation] === only.others;
  }

  /** Whether the CPU or the workers may run it. */
  mayGoAside(invocation: number, { cpu, workers }: OfferSheet): boolean {
    return (cpu !== null || Boolean(workers)) && this.#only[invocation] !== only.gpus;
  }

  /** When an invocation has to be answered. */
  deadlineMs(invocation: number, { sloMs }: OfferSheet): number {
    const own = this.#ownSloMs[invocation]!;
    return this.arrivalMs[invocation]! + (Number.isNaN(own) ? sloMs : own);
  }

  /** By when it has to start to be in order: its deadline, or without one the policy's bound on waiting. */
  dueMs(invocation: number, sheet: OfferSheet): number {
    const deadlineMs = this.deadlineMs(invocation, sheet);
    return deadlineMs < Infinity ? deadlineMs : this.arrivalMs[invocation]! + this.policy.waitBoundMs;
  }

  /** Whether calls that can no longer meet the function's SLO are refused. */
  sheds({ admission = this.policy.admission }: OfferSheet): boolean {
    return admission === 'shed';
  }

  letThrough(invocation: number): void {
    this.#isLetThrough[invocation] = 1;
  }

  /** Whether the invocation is refused once it is late: it has an SLO, and its function sheds. */
  isShedWhenLate(invocation: number, sheet: OfferSheet): boolean {
    return this.sheds(sheet) && this.#isLetThrough[invocation] === 0 && this.deadlineMs(invocation, sheet) < Infinity;
  }

  priorityOf(invocation: number, { priority }: OfferSheet): number {
    const own = this.#ownPriority[invocation]!;
    return Number.isNaN(own) ? priority : own;
  }
}
