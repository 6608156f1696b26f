/** The calls that are open now: what each waits for, and which have passed their SLO already. */
import type { CallStage, CallStages, PoolTimings } from '../../cpu/index.ts';
import { lateCauses, type Miss } from './miss-causes.ts';
import type { Outcome } from './placement.ts';

type LateCause = (typeof lateCauses)[number];

/** What was measured of a call before it became an invocation, in milliseconds. */
export interface BeforeCall {
  /** How long large bodies were decoded until its own was: others' before it too. */
  decodeMs?: number | undefined;
  /** How long the host waited for its body. */
  receiveMs?: number | undefined;
  /** How long it waited until its version was validated. */
  readyMs?: number | undefined;
  /** It has become one, which counts it: what fails of it from then on is no call of its own. */
  isInvocation?: boolean;
}

/** Milliseconds in each stage so far. `body`: from the call's arrival until its body was read and decoded. */
export type StageTimes = Readonly<Record<CallStage | 'body', number>>;

export class OpenCall implements CallStages {
  readonly functionName: string;
  /** Instant (performance.now()) at which it arrived. */
  readonly arrivalMs: number;
  readonly sloMs: number;
  readonly before: BeforeCall;
  readonly #spentMs: Record<CallStage | 'body', number>;
  #stage: CallStage = 'turn';
  #sinceMs: number;
  #hasRun = false;

  constructor(functionName: string, arrivalMs: number, sloMs: number, nowMs: number, before: BeforeCall = {}) {
    this.functionName = functionName;
    this.arrivalMs = arrivalMs;
    this.sloMs = sloMs;
    this.before = before;
    this.#spentMs = { body: Math.max(0, nowMs - arrivalMs), turn: 0, load: 0, handler: 0, model: 0, away: 0 };
    this.#sinceMs = nowMs;
  }

  /** What it waits for, or what is done with it. */
  get stage(): CallStage {
    return this.#stage;
  }

  /** Instant at which that began. */
  get sinceMs(): number {
    return this.#sinceMs;
  }

  /** Whether its handler or its model has begun to run. */
  get hasRun(): boolean {
    return this.#hasRun;
  }

  enter(stage: CallStage, nowMs = performance.now()): void {
    this.#spentMs[this.#stage] += nowMs - this.#sinceMs;
    this.#sinceMs = nowMs;
    this.#stage = stage;
    if (stage === 'handler' || stage === 'model') this.#hasRun = true;
  }

  times(nowMs = performance.now()): StageTimes {
    return { ...this.#spentMs, [this.#stage]: this.#spentMs[this.#stage] + nowMs - this.#sinceMs };
  }
}

/** Open calls of a function that have passed their SLO: they are missed whatever comes. */
export interface Overdue {
  calls: number;
  /** Age of the oldest. */
  oldestMs: number;
  /** How many of them are in each stage. */
  readonly stages: Partial<Record<CallStage, number>>;
  /** How long the longest of them has been in its stage. */
  readonly longestMs: Partial<Record<CallStage, number>>;
}

/** Is told of every call, wherever it runs. */
export interface CallsObserver {
  arrived(): void;
  ended(): void;
}

export class OpenCalls {
  readonly #open = new Set<OpenCall>();
  readonly #observer: CallsObserver | undefined;

  constructor(observer?: CallsObserver) {
    this.#observer = observer;
  }

  begin(functionName: string, arrivalMs: number, sloMs: number, before?: BeforeCall): OpenCall {
    const call = new OpenCall(functionName, arrivalMs, sloMs, performance.now(), before);
    this.#open.add(call);
    this.#observer?.arrived();
    return call;
  }

  end(call: OpenCall): void {
    this.#open.delete(call);
    this.#observer?.ended();
  }

  /** Age of the oldest, in milliseconds; 0 if none is open. */
  oldestMs(nowMs = performance.now()): number {
    let oldestMs = 0;
    for (const { arrivalMs } of this.#open) oldestMs = Math.max(oldestMs, nowMs - arrivalMs);
    return oldestMs;
  }

  /** By function. */
  overdue(nowMs = performance.now()): Map<string, Overdue> {
    const found = new Map<string, Overdue>();
    for (const { functionName, arrivalMs, sloMs, stage, sinceMs } of this.#open) {
      const ageMs = nowMs - arrivalMs;
      if (ageMs <= sloMs) continue;
      const row = found.get(functionName) ?? { calls: 0, oldestMs: 0, stages: {}, longestMs: {} };
      row.calls++;
      row.oldestMs = Math.max(row.oldestMs, ageMs);
      row.stages[stage] = (row.stages[stage] ?? 0) + 1;
      row.longestMs[stage] = Math.max(row.longestMs[stage] ?? 0, nowMs - sinceMs);
      found.set(functionName, row);
    }
    return found;
  }
}

/** How busy the machine was during a call. */
export interface MachineBusy {
  /** Its cores were full. */
  readonly isFull: boolean;
  /** The longest that the host's event loop was late. */
  readonly loopDelayMs: number;
}

/** An event loop that is this late is busy, */
export const lateLoopMs = 50;
/** a body that took this much longer than that to come was sent slowly, */
const slowUploadMs = 50;
/** and a host that needed this long for a call's request, without receiving and decoding it, had others to do. */
const othersFirstMs = 10;

/**
 * Why a call missed its SLO: the part of its time that was longest. What no part accounts for is unexplained, and says
 * so, unless the machine or the event loop was measured to be busy meanwhile. Without that rest the call would have been
 * late by as much less, so of the time beyond the SLO that much is unexplained too.
 *
 * @param timings of its answer, which tell handler and model apart from a process that got no core for them
 * @param machineOf how busy the machine was since the call arrived
 */
export function missOf(
  outcome: Outcome | undefined,
  call: OpenCall,
  latencyMs: number,
  timings: PoolTimings | undefined,
  machineOf: () => MachineBusy,
): Miss | undefined {
  if (outcome === undefined || outcome === 'in_slo') return undefined;
  const lateMs = Math.max(0, latencyMs - call.sloMs);
  if (outcome !== 'late') return { cause: outcome, lateMs, unexplainedMs: 0 };
  const machine = machineOf();
  const spent = call.times();
  const { turn, load, handler, model, away, ...stages } =
    timings === undefined ? spent : stagesOf(timings, spent, call.stage);
  const before = beforeOf(call, spent.body, machine);
  const busy = before.parts.busy + ('coreWait' in stages ? stages.coreWait : 0);
  const measured = { queue: turn, load: load + before.load, handler, model, away, ...before.parts, busy };
  const sum = Object.values(measured).reduce((total, ms) => total + ms, 0);
  const restMs = Math.max(0, latencyMs - sum);
  const isRestBusy = machine.isFull || machine.loopDelayMs >= lateLoopMs;
  const parts: Record<LateCause, number> = {
    ...measured,
    busy: measured.busy + (isRestBusy ? restMs : 0),
    unexplained: isRestBusy ? 0 : restMs,
  };
  let cause: LateCause = 'queue';
  for (const each of lateCauses) if (parts[each] > parts[cause]) cause = each;
  return { cause, lateMs, unexplainedMs: Math.min(lateMs, parts.unexplained) };
}

/** What a call's time before its invocation went to. */
function beforeOf({ before }: OpenCall, spentMs: number, { loopDelayMs }: MachineBusy) {
  const { decodeMs = 0, receiveMs, readyMs = 0 } = before;
  const body = Math.min(spentMs, decodeMs);
  if (receiveMs === undefined) return { load: readyMs, parts: { body, upload: 0, busy: 0 } };
  const slowMs = receiveMs - loopDelayMs;
  const hostMs = spentMs - body - receiveMs - readyMs;
  const upload = slowMs >= slowUploadMs ? slowMs : 0;
  return { load: readyMs, parts: { body, upload, busy: hostMs >= othersFirstMs ? hostMs : 0 } };
}

/** Waits in the scheduler count with those in the pool; a run split into parts has stages of no single one. */
function stagesOf(timings: PoolTimings, spent: StageTimes, stage: CallStage): Record<CallStage | 'coreWait', number> {
  const { queueMs, loadMs, preprocessMs, inferMs, postprocessMs, coreWaitMs = 0 } = timings;
  const ranMs = preprocessMs + inferMs + postprocessMs;
  const thereMs = queueMs + loadMs + ranMs;
  const coreWait = Math.min(ranMs, coreWaitMs);
  // Which of them waited for a core is not told apart.
  const share = ranMs === 0 ? 0 : 1 - coreWait / ranMs;
  // One that came back has its answer from here, which counts the time there as a wait.
  const lostMs = stage === 'away' ? 0 : spent.away;
  return {
    turn: Math.max(queueMs - lostMs, spent.turn),
    load: Math.max(loadMs, spent.load),
    handler: share * (preprocessMs + postprocessMs),
    model: share * inferMs,
    coreWait,
    away: stage === 'away' ? Math.max(0, spent.away - thereMs) : lostMs,
  };
}
