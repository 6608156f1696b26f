/**
 * A function's state on the host's GPUs: a record, and one reducer that maps an event to the next record and effects.
 * Pure: events bring their time, and gpu-functions.ts carries effects out.
 */
import { afterFailure, afterHang, breakerWords, isOpen, type Breaker } from './circuit-breaker.ts';

export type GpuFunctionState =
  /** Not in the GPU process yet: it waits for the process, or for its turn. */
  | { readonly kind: 'absent' }
  /** Its program is compiled and bound to each GPU. */
  | { readonly kind: 'registering' }
  | { readonly kind: 'measuring' }
  /** Its answer on the GPU is being compared with ONNX Runtime's. */
  | { readonly kind: 'checking' }
  /** It can be invoked; no GPU has any of its weights. */
  | { readonly kind: 'planned' }
  | { readonly kind: 'resident'; readonly gpus: readonly number[] }
  /** Its circuit breaker is open. */
  | { readonly kind: 'paused' }
  /** ONNX Runtime itself does not run random inputs: those of a call, which runs elsewhere, will decide. */
  | { readonly kind: 'undecided'; readonly reason: string }
  /**
   * Its program is made for the sizes of its next call: those that were guessed, or those of an earlier call, came to
   * nothing.
   */
  | Unsized
  /** Its answer on a GPU differs from ONNX Runtime's. */
  | { readonly kind: 'disagreed'; readonly reason: string }
  /** Runs elsewhere until this event. */
  | { readonly kind: 'refused'; readonly reason: string; readonly until: 'another model' | 'a pin goes' }
  /** It was planned; the GPU process ended, and the next one does not have it yet. */
  | { readonly kind: 'lost' };

export interface Unsized {
  readonly kind: 'unsized';
  /** The values of these inputs decide about sizes, so that nothing can be guessed. */
  readonly inputs: readonly string[];
  /** What came of the latest sizes, in words; undefined if none were tried. */
  readonly reason?: string;
  /** They had too little room: when a pin goes they may have it. */
  readonly isOfRoom?: true;
}

export interface GpuFunctionRecord {
  readonly key: string;
  readonly state: GpuFunctionState;
  /** Number of its latest work; results of earlier work are ignored. */
  readonly attempt: number;
  /** The GPU process is working on its preparation: if the process ends now, this function may be the cause. */
  readonly isInHand: boolean;
  readonly isPinned: boolean;
  /** The source of its plan until the function has been measured here. */
  readonly estimated: string | undefined;
  /** Present for a suspect: how often the GPU process died while working on this function alone. */
  readonly crashes: number | undefined;
  readonly breaker: Breaker | undefined;
  /** Why its next start on a GPU will be cold, in the words of headers, `ps` and the page. */
  readonly coldCause: string;
}

export type Stage = 'registering' | 'measuring' | 'checking';

export type FunctionEvent =
  /** `isInHand` is false while the work waits for other functions. */
  | { readonly kind: 'stage'; readonly attempt: number; readonly stage: Stage; readonly isInHand: boolean }
  | { readonly kind: 'planned'; readonly attempt: number; readonly estimated?: string }
  | { readonly kind: 'brought back'; readonly attempt: number }
  | { readonly kind: 'undecided'; readonly attempt: number; readonly reason: string }
  | (Unsized & { readonly attempt: number })
  /** A call has brought the sizes that it waited for. */
  | { readonly kind: 'sized' }
  /** An operator asks for it: what was refused is tried again. */
  | { readonly kind: 'asked for' }
  /** Found before it served, for new shapes, or by a later check of a GPU's answer. */
  | { readonly kind: 'disagreed'; readonly reason: string }
  /** The engine lacks an operator. */
  | { readonly kind: 'unfit'; readonly attempt: number; readonly reason: string }
  | { readonly kind: 'failed'; readonly attempt: number; readonly cause: FailureCause; readonly reason: string }
  | { readonly kind: 'pinned'; readonly isPinned: boolean }
  | { readonly kind: 'run succeeded' }
  | { readonly kind: 'run failed'; readonly reason: string }
  | { readonly kind: 'run hung'; readonly reason: string }
  | { readonly kind: 'pause over' }
  | { readonly kind: 'arrived'; readonly gpu: number }
  /** `isWhole`: none of its layers are left there. */
  | { readonly kind: 'left'; readonly gpu: number; readonly isWhole: boolean; readonly cause: string };

/** `process`: it died or its context broke. `room`: others have the memory that it needs. `function`: all else. */
export type FailureCause = 'process' | 'room' | 'function';

export type FunctionEffect =
  /** Register, measure, check and plan it; alone if it is a suspect. */
  | { readonly kind: 'prepare'; readonly key: string; readonly attempt: number; readonly isAlone: boolean }
  /** Restore in the new process what the last one had. */
  | { readonly kind: 'bring back'; readonly key: string; readonly attempt: number; readonly isAlone: boolean }
  /** The scheduler may use GPUs for it, with its current plans and settings. */
  | { readonly kind: 'offer'; readonly key: string }
  | { readonly kind: 'retract'; readonly key: string }
  /** The process must forget it as well. The reason is given if the function stays known. */
  | { readonly kind: 'discard'; readonly key: string; readonly reason: string | undefined }
  | { readonly kind: 'preload'; readonly key: string }
  | { readonly kind: 'retry at'; readonly key: string; readonly atMs: number };

export interface Reduced {
  readonly record: GpuFunctionRecord;
  readonly effects: readonly FunctionEffect[];
}

/** Deaths of the process while it worked on a suspect alone, before that is refused. */
const crashesMax = 3;

export function newRecord(key: string, isPinned: boolean, attempt: number, coldCause: string): GpuFunctionRecord {
  const nothing = { estimated: undefined, crashes: undefined, breaker: undefined };
  return { key, state: { kind: 'absent' }, attempt, isInHand: false, isPinned, coldCause, ...nothing };
}

/** Whether the scheduler may use GPUs for it. */
export const isOffered = ({ state }: GpuFunctionRecord): boolean =>
  state.kind === 'planned' || state.kind === 'resident';

/** Whether its state stays the same while the process is up. */
export function isSettled({ state, estimated }: GpuFunctionRecord): boolean {
  switch (state.kind) {
    case 'absent':
    case 'registering':
    case 'measuring':
    case 'checking':
    case 'lost':
      return false;
    case 'planned':
    case 'resident':
      return estimated === undefined;
    case 'undecided':
    case 'unsized':
    case 'disagreed':
    case 'paused':
    case 'refused':
      return true;
  }
}

export function reduce(record: GpuFunctionRecord, event: FunctionEvent, nowMs: number): Reduced {
  const same: Reduced = { record, effects: [] };
  if ('attempt' in event && event.attempt !== record.attempt) return same;
  switch (event.kind) {
    case 'stage':
      return staged(record, event);
    case 'planned':
      return ready({ ...record, estimated: event.estimated, crashes: undefined }, nowMs);
    case 'brought back':
      return ready({ ...record, crashes: undefined }, nowMs);
    case 'undecided': {
      const state: GpuFunctionState = { kind: 'undecided', reason: event.reason };
      return { record: { ...record, estimated: undefined, crashes: undefined, isInHand: false, state }, effects: [] };
    }
    case 'unsized': {
      const { attempt: _, ...state } = event;
      // The process may have it with a program for sizes that are not used again.
      return turnedAway({ ...record, estimated: undefined, crashes: undefined }, state, undefined);
    }
    case 'sized':
      return record.state.kind === 'unsized' ? prepared(record) : same;
    case 'asked for': {
      const isWaiting = record.state.kind === 'unsized' || record.state.kind === 'refused';
      return isWaiting ? prepared({ ...record, crashes: undefined }) : same;
    }
    case 'disagreed': {
      if (record.state.kind === 'disagreed' || record.state.kind === 'refused') return same;
      // Its work under way is ignored.
      const next: GpuFunctionRecord = { ...record, attempt: record.attempt + 1 };
      return turnedAway(next, { kind: 'disagreed', reason: event.reason }, event.reason);
    }
    case 'unfit':
      return refused(record, event.reason, 'another model');
    case 'failed':
      return failed(record, event);
    case 'pinned': {
      const next = { ...record, isPinned: event.isPinned };
      if (!isOffered(record)) return { record: next, effects: [] };
      return { record: next, effects: [{ kind: 'offer', key: record.key }, ...preloadOf(next, record.isPinned)] };
    }
    case 'run succeeded':
      return { record: { ...record, breaker: undefined }, effects: [] };
    case 'run failed':
      return broken({ ...record, breaker: afterFailure(record.breaker, event.reason, nowMs) }, nowMs);
    case 'run hung':
      return broken({ ...record, breaker: afterHang(record.breaker, event.reason, nowMs) }, nowMs);
    case 'pause over':
      return record.state.kind !== 'paused' || isOpen(record.breaker, nowMs) ? same : ready(record, nowMs);
    case 'arrived': {
      const { state } = record;
      if (!isOffered(record) || gpusOf(record).includes(event.gpu)) return same;
      const gpus = [...(state.kind === 'resident' ? state.gpus : []), event.gpu].toSorted((a, b) => a - b);
      return { record: { ...record, state: { kind: 'resident', gpus } }, effects: [] };
    }
    case 'left': {
      const coldCause = event.cause;
      if (record.state.kind !== 'resident' || !event.isWhole) return { record: { ...record, coldCause }, effects: [] };
      const gpus = record.state.gpus.filter((gpu) => gpu !== event.gpu);
      const state: GpuFunctionState = gpus.length === 0 ? { kind: 'planned' } : { kind: 'resident', gpus };
      return { record: { ...record, state, coldCause }, effects: [] };
    }
  }
}

function staged(record: GpuFunctionRecord, event: Extract<FunctionEvent, { kind: 'stage' }>): Reduced {
  const { isInHand, stage } = event;
  // While it waits to be measured an estimated plan may serve it; while it is being restored it stays lost.
  const keepsState = record.state.kind === 'lost' || (isOffered(record) && !isInHand);
  if (keepsState) return { record: { ...record, isInHand }, effects: [] };
  const effects: FunctionEffect[] = isOffered(record) ? [{ kind: 'retract', key: record.key }] : [];
  return { record: { ...record, isInHand, state: { kind: stage } }, effects };
}

/** It can be invoked, unless its breaker is open. */
function ready(record: GpuFunctionRecord, nowMs: number): Reduced {
  const { key, breaker } = record;
  const isInHand = record.estimated !== undefined && record.isInHand;
  if (isOpen(breaker, nowMs)) {
    const effects: FunctionEffect[] = [{ kind: 'retry at', key, atMs: breaker.untilMs }];
    return { record: { ...record, isInHand, state: { kind: 'paused' } }, effects };
  }
  const next: GpuFunctionRecord = { ...record, isInHand, state: { kind: 'planned' } };
  return { record: next, effects: [{ kind: 'offer', key }, ...preloadOf(next, false)] };
}

const preloadOf = ({ key, isPinned }: GpuFunctionRecord, wasPinned: boolean): FunctionEffect[] =>
  isPinned && !wasPinned ? [{ kind: 'preload', key }] : [];

function broken(record: GpuFunctionRecord, nowMs: number): Reduced {
  const { key, breaker } = record;
  if (!isOffered(record) || !isOpen(breaker, nowMs)) return { record, effects: [] };
  return {
    record: { ...record, state: { kind: 'paused' }, coldCause: evicted('its runs failed', key) },
    effects: [
      { kind: 'retract', key },
      { kind: 'retry at', key, atMs: breaker.untilMs },
    ],
  };
}

const refused = (record: GpuFunctionRecord, reason: string, until: 'another model' | 'a pin goes'): Reduced =>
  turnedAway(record, { kind: 'refused', reason, until }, reason);

/** @param reason why it stays on the CPU pool, for the log */
function turnedAway(
  record: GpuFunctionRecord,
  state: Extract<GpuFunctionState, { kind: 'refused' | 'disagreed' | 'unsized' }>,
  reason: string | undefined,
): Reduced {
  const { key } = record;
  return {
    record: { ...record, isInHand: false, state },
    effects: [
      { kind: 'retract', key },
      { kind: 'discard', key, reason },
    ],
  };
}

function failed(record: GpuFunctionRecord, event: Extract<FunctionEvent, { kind: 'failed' }>): Reduced {
  switch (event.cause) {
    case 'process':
      return retried({ ...record, crashes: (record.crashes ?? 0) + 1 }, event.reason);
    case 'room':
      return refused(record, event.reason, 'a pin goes');
    case 'function':
      return refused(record, event.reason, 'another model');
  }
}

/** Tries once more, alone, or gives up. */
function retried(record: GpuFunctionRecord, reason: string): Reduced {
  if ((record.crashes ?? 0) < crashesMax) return prepared(record);
  const hint = 'if the driver is the cause, "gpu.without" leaves out what it does wrongly';
  const why = `${crashesMax} times while it alone was being brought to the GPUs, ${reason}; ${hint}`;
  return refused(record, why, 'another model');
}

function prepared(record: GpuFunctionRecord): Reduced {
  const attempt = record.attempt + 1;
  const work = { key: record.key, attempt, isAlone: record.crashes !== undefined };
  const isLost = record.state.kind === 'lost';
  return {
    record: { ...record, attempt, isInHand: false, state: { kind: isLost ? 'lost' : 'absent' } },
    effects: [
      ...(isOffered(record) ? [{ kind: 'retract', key: record.key } as const] : []),
      { kind: isLost ? 'bring back' : 'prepare', ...work },
    ],
  };
}

/** The GPU process ended. @param isAlone whether it worked on this function and no other */
export function processEnded(record: GpuFunctionRecord, reason: string, isAlone: boolean): Reduced {
  const { key, state, estimated } = record;
  const isSuspect = record.isInHand || record.crashes !== undefined;
  const crashes = isSuspect ? (record.crashes ?? 0) + (record.isInHand && isAlone ? 1 : 0) : undefined;
  // Results of its work under way are ignored.
  const next = { ...record, crashes, isInHand: false, attempt: record.attempt + 1 };
  switch (state.kind) {
    case 'refused':
    case 'disagreed':
      return { record, effects: [] };
    case 'absent':
      return { record: next, effects: [] };
    case 'undecided':
    case 'unsized':
      return { record: { ...next, state: { kind: 'absent' } }, effects: [] };
    case 'planned':
    case 'resident':
    case 'paused': {
      // With an estimated plan its preparation had not ended.
      const kind = estimated === undefined ? 'lost' : 'absent';
      return {
        record: { ...next, state: { kind }, coldCause: lostWithProcess },
        effects: state.kind === 'paused' ? [] : [{ kind: 'retract', key }],
      };
    }
    case 'registering':
    case 'measuring':
    case 'checking':
    case 'lost': {
      if ((crashes ?? 0) >= crashesMax) return retried(next, reason);
      return { record: { ...next, state: { kind: state.kind === 'lost' ? 'lost' : 'absent' } }, effects: [] };
    }
  }
}

/** A GPU process is up. */
export function processUp(record: GpuFunctionRecord): Reduced {
  const { kind } = record.state;
  return kind === 'lost' || kind === 'absent' ? prepared(record) : { record, effects: [] };
}

/** A pin has gone: a function that had too little room is tried again. */
export function roomAgain(record: GpuFunctionRecord): Reduced {
  const { state } = record;
  const isCrowdedOut =
    (state.kind === 'refused' && state.until === 'a pin goes') || (state.kind === 'unsized' && state.isOfRoom === true);
  return isCrowdedOut ? prepared(record) : { record, effects: [] };
}

/** Why it may not use a GPU now; undefined if it may. */
export function whyNotOnGpu({ state, breaker }: GpuFunctionRecord, nowMs: number): string | undefined {
  switch (state.kind) {
    case 'absent':
      return 'it waits to be registered with the GPU process';
    case 'registering':
      return 'its program is being compiled';
    case 'measuring':
      return 'its layers are being measured';
    case 'checking':
      return 'its answer is being compared with that of ONNX Runtime';
    case 'planned':
    case 'resident':
      return undefined;
    case 'paused':
      return breaker === undefined ? 'it is paused' : breakerWords(breaker, nowMs);
    case 'undecided':
      return `the inputs of a call decide whether its answer is right: ${state.reason}`;
    case 'unsized':
      return unsizedText(state);
    case 'disagreed':
      return `its answer differs from that of ONNX Runtime: ${state.reason}`;
    case 'refused':
      return `refused: ${state.reason}`;
    case 'lost':
      return 'the GPU process was restarted and does not have it again yet';
  }
}

function unsizedText({ inputs, reason, isOfRoom }: Unsized): string {
  const what = inputs.length === 0 ? 'sizes' : `values of ${namesText(inputs)}`;
  if (reason === undefined) return `its program is made for the ${what}, and those of a call come first`;
  const pin = isOfRoom === true ? ', or for a pin to go' : '';
  return `it waits for a call with other ${what}${pin}: ${reason}`;
}

/** `'sizes' and 'axes'` */
export const namesText = (names: readonly string[]): string => names.map((name) => `'${name}'`).join(' and ');

export const gpusOf = ({ state }: GpuFunctionRecord): readonly number[] =>
  state.kind === 'resident' ? state.gpus : [];

/** A cause of a cold start: `evicted: room by f@1`. */
export const evicted = (why: string, by?: string): string => `evicted: ${why}${by === undefined ? '' : ` by ${by}`}`;

export const lostWithProcess = 'lost with the GPU process';
