/** The calls that are open now: what each waits for, and which have passed their SLO already. */
import type { CallStage, CallStages, PoolTimings } from '../cpu/index.ts';
import type { Miss } from './miss-causes.ts';
import type { Outcome } from './placement.ts';

/** Milliseconds in each stage so far. `body`: from the call's arrival until its body was read and decoded. */
export type StageTimes = Readonly<Record<CallStage | 'body', number>>;

export class OpenCall implements CallStages {
  readonly functionName: string;
  /** Instant (performance.now()) at which it arrived. */
  readonly arrivalMs: number;
  readonly sloMs: number;
  /** How long large bodies were decoded until its own was: others' before it too. */
  readonly decodeMs: number;
  readonly #spentMs: Record<CallStage | 'body', number>;
  #stage: CallStage = 'turn';
  #sinceMs: number;
  #hasRun = false;

  constructor(functionName: string, arrivalMs: number, sloMs: number, nowMs: number, decodeMs = 0) {
    this.functionName = functionName;
    this.arrivalMs = arrivalMs;
    this.sloMs = sloMs;
    this.decodeMs = decodeMs;
    this.#spentMs = { body: Math.max(0, nowMs - arrivalMs), turn: 0, load: 0, handler: 0, model: 0 };
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

export class OpenCalls {
  readonly #open = new Set<OpenCall>();

  begin(functionName: string, arrivalMs: number, sloMs: number, decodeMs = 0): OpenCall {
    const call = new OpenCall(functionName, arrivalMs, sloMs, performance.now(), decodeMs);
    this.#open.add(call);
    return call;
  }

  end(call: OpenCall): void {
    this.#open.delete(call);
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

/**
 * Why a call missed its SLO: the part of its time that was longest. What no part accounts for is unexplained, and says
 * so, unless the machine or the event loop was measured to be busy meanwhile. Without that rest the call would have been
 * late by as much less, so of the time beyond the SLO that much is unexplained too.
 *
 * @param timings of its answer, which tell handler and model apart from a process that got no core for them
 * @param isBusy whether cores were full or the event loop late since the call arrived
 */
export function missOf(
  outcome: Outcome | undefined,
  call: OpenCall,
  latencyMs: number,
  timings: PoolTimings | undefined,
  isBusy: () => boolean,
): Miss | undefined {
  if (outcome === undefined || outcome === 'in_slo') return undefined;
  const lateMs = Math.max(0, latencyMs - call.sloMs);
  if (outcome !== 'late') return { cause: outcome, lateMs, unexplainedMs: 0 };
  const spent = call.times();
  const { turn, load, handler, model } = timings === undefined ? spent : stagesOf(timings, spent);
  const body = Math.min(spent.body, call.decodeMs);
  const restMs = latencyMs - turn - load - handler - model - body;
  const parts = { queue: turn, load, handler, model, body };
  let cause: keyof typeof parts = 'queue';
  for (const each of Object.keys(parts) as (keyof typeof parts)[]) if (parts[each] > parts[cause]) cause = each;
  const isRestBusy = isBusy();
  const rest = isRestBusy ? 'busy' : 'unexplained';
  return {
    cause: parts[cause] >= restMs ? cause : rest,
    lateMs,
    unexplainedMs: isRestBusy ? 0 : Math.min(lateMs, Math.max(0, restMs)),
  };
}

/** Waits in the scheduler count with those in the pool; a run split into parts has stages of no single one. */
const stagesOf = (timings: PoolTimings, spent: StageTimes): Record<CallStage, number> => ({
  turn: Math.max(timings.queueMs, spent.turn),
  load: Math.max(timings.loadMs, spent.load),
  handler: timings.preprocessMs + timings.postprocessMs,
  model: timings.inferMs,
});
