/**
 * Instances on demand: which of them gets the calls that wait, how many calls go as one message, and when another instance
 * is worth waking or starting. Pools and the simulator run this code. Waiting calls are sent in their order,
 *   1. to a busy instance ahead of time, while all of them are less than `nextInstanceMs` of work: the instance then finds
 *      its next work queued, and waking another would cost more than it brings;
 *   2. else to an idle instance, when the cores allow another run;
 *   3. else, if runs are short, to a busy one after all.
 * A message of a function that does not batch holds as many runs as make up `aheadMs` of work: for a run of some
 * microseconds the way to the instance and back costs more than the run, and sharing it doubles the throughput.
 */
import { batchDueMs, type BatchCall } from './batches.ts';

/** Milliseconds of work that one message may hold, and the most runs in it. */
const aheadMs = 1;
const aheadRunsMax = 32;
/**
 * Milliseconds of waiting work that justify another instance, and how long a call waits for that work to be done as
 * soon as expected. For calls of some microseconds the host itself is the limit; on two cores a second process then
 * costs a fifth of the throughput.
 */
const nextInstanceMs = 2;
const patienceMs = 5;
/** Weight of a longer measurement in the expected time of a call; a shorter one counts at once. */
const slowerWeight = 0.05;
const steadyMessages = 8;
/** Messages that an instance has of one function: the current one and a queued one. */
const messagesMax = 2;

/** The calls that wait, in their order. */
interface WaitingInOrder extends Iterable<BatchCall> {
  readonly length: number;
}

/** The instances of one function that come and go with its calls. */
export interface DemandList<Instance> {
  readonly pace: Pace;
  /** Most rows of a run, most instances, and the longest that a call waits for others to share its run. */
  readonly limits: { readonly batchMax: number; readonly instancesMax: number; readonly batchDelayMs: number };
  /** In the order in which they were started. */
  readonly instances: Iterable<Instance>;
  /** `away`: it is starting, or takes no more calls. */
  readonly stateOf: (instance: Instance) => 'idle' | 'busy' | 'away';
  /** Messages that it has, without those whose model runs elsewhere. */
  readonly queuedOf: (instance: Instance) => number;
  /** Whether its process takes a message now; {@link nextOnDemand} is to be asked again once it does. */
  readonly takes: (instance: Instance) => boolean;
  /** {@link nextOnDemand} is to be asked again then, unless an earlier one is asked for. */
  readonly later: (ms: number) => void;
  /** It is to be asked again at that instant, in place of the latest of these. */
  readonly fillsUntil: (dueMs: number) => void;
  /** One more instance is worth starting, where {@link mayGrow} allows it. */
  readonly grow: () => void;
}

export class Pace {
  /**
   * Time of one call on an instance with a core for itself; undefined before the first. On a busy machine most
   * measurements include waiting for a core, so the short ones are believed.
   */
  #callMs: number | undefined;
  #messages = 0;

  get callMs(): number | undefined {
    return this.#callMs;
  }

  /** The same, once there are enough measurements that one slowed down by waiting for a core does not matter. */
  get steadyCallMs(): number | undefined {
    return this.#messages >= steadyMessages ? this.#callMs : undefined;
  }

  /** A message of so many calls took an instance `busyMs`. */
  ran(calls: number, busyMs: number): void {
    const callMs = busyMs / calls;
    this.#messages++;
    const beliefMs = this.#callMs ?? callMs;
    this.#callMs = callMs < beliefMs ? callMs : beliefMs + slowerWeight * (callMs - beliefMs);
  }

  /** Whether the waiting calls are served soonest by an instance that is busy now. */
  littleWaits(waiting: WaitingInOrder, nowMs: number): boolean {
    const [first] = waiting;
    if (this.#callMs === undefined || first === undefined) return false;
    return waiting.length * this.#callMs <= nextInstanceMs && nowMs - first.arrivalMs < patienceMs;
  }

  /** Whether its messages are so short that others may be queued behind them. */
  get isShort(): boolean {
    return this.callsPerMessage > 1;
  }

  /** Calls of one message: as many as make up `aheadMs` of work; 1 while that is unknown. */
  get callsPerMessage(): number {
    if (this.#callMs === undefined) return 1;
    return Math.max(1, Math.min(aheadRunsMax, Math.floor(aheadMs / this.#callMs)));
  }
}

/** Whether a list on demand may start one more instance. @param ready how many instances are */
export const mayGrow = (isStarting: boolean, ready: number, instancesMax: number): boolean =>
  !isStarting && ready < instancesMax;

/** Whether a call that finds no other waiting goes to an idle instance without waiting for others. */
export function goesAtOnce<Instance>(list: DemandList<Instance>, rows: number): boolean {
  const { batchDelayMs, batchMax } = list.limits;
  if (list.pace.isShort && isAtWork(list)) return false;
  return batchDelayMs === 0 || rows >= batchMax;
}

/** The instance that gets the next of the calls that wait, of which there are some; undefined: none for now. */
export function nextOnDemand<Instance>(
  waiting: WaitingInOrder,
  list: DemandList<Instance>,
  nowMs: number,
): Instance | undefined {
  const { pace, limits, instances, stateOf } = list;
  let hasIdle = false;
  for (const instance of instances) hasIdle ||= stateOf(instance) === 'idle';
  if (hasIdle) {
    const dueMs = batchDueMs(waiting, limits.batchMax, limits.batchDelayMs, pace.callMs ?? 0);
    if (dueMs > nowMs) {
      list.fillsUntil(dueMs);
      return undefined;
    }
  }
  const littleWaits = isAtWork(list) && pace.littleWaits(waiting, nowMs);
  if (littleWaits) list.later(patienceMs);
  const found = (littleWaits ? undefined : idleOnDemand(list)) ?? aheadOnDemand(list);
  if (found === undefined && !hasIdle && !littleWaits) list.grow();
  return found;
}

/** The idle instance that was started last, of those whose process has a turn. */
export function idleOnDemand<Instance>({ instances, stateOf, takes }: DemandList<Instance>): Instance | undefined {
  for (const instance of [...instances].reverse()) if (stateOf(instance) === 'idle' && takes(instance)) return instance;
  return undefined;
}

/** A busy instance that may get more work queued, or that only waits for models that run elsewhere. */
function aheadOnDemand<Instance>({ instances, stateOf, queuedOf, takes }: DemandList<Instance>): Instance | undefined {
  let least: Instance | undefined;
  for (const instance of instances) {
    if (stateOf(instance) !== 'busy') continue;
    if (least === undefined || queuedOf(instance) < queuedOf(least)) least = instance;
  }
  return least !== undefined && queuedOf(least) < messagesMax && takes(least) ? least : undefined;
}

function isAtWork<Instance>({ instances, queuedOf }: DemandList<Instance>): boolean {
  for (const instance of instances) if (queuedOf(instance) > 0) return true;
  return false;
}
