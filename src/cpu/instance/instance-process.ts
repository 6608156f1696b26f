/**
 * The process of one CPU instance: any number of ONNX Runtime sessions, each with at most one handler in a module of
 * its own. It starts without any. See protocol.ts for the messages.
 */
import { goOffline, heap, parentChannel, tagOutput } from '../../process/index.ts';
import { owned, type Message, type Tensor } from '../../tensor/index.ts';
import { given } from '../../tools/index.ts';
import type { Handler, HandlerContext } from './handler.ts';
import {
  checkGiven,
  handlerCall,
  loadHandler,
  messageOf,
  runPostprocess,
  runPreprocess,
  sessionOfStack,
} from './handler-runner.ts';
import { handlerStack } from './handler-stack.ts';
import { failure } from './failure.ts';
import { InstanceModel, type InstanceCall } from './instance-model.ts';
import { OtherCalls, type OtherAnswered } from './others.ts';
import { bodyIn, bodyTensor, timesTensor, withTensors } from './protocol.ts';
import type { CallHeader, FromInstance, Joining, LoadedLate, Phase, ResultHeader, ToInstance } from './protocol.ts';
import { WaitMeter, type DiskRead } from './wait-meter.ts';

/**
 * Messages are handled strictly one after the other. A run that waits for the host ends its message; the answer
 * comes as a message of its own.
 */
let last: Promise<void> = Promise.resolve();
/** Messages received and not finished. */
let waiting = 0;
const host = parentChannel<FromInstance, ToInstance>(
  (message) => {
    const work = waiting === 0 ? take(message) : last.then(() => take(message));
    if (work === undefined) return;
    waiting++;
    last = work.then(() => void waiting--);
  },
  { lends: true },
);

/** A function in this process. */
interface Loaded {
  readonly number: number;
  readonly model: InstanceModel;
  readonly handler: Handler | undefined;
}

const sessions = new Map<number, Loaded>();
/** The session of the latest message: output from then on is attributed to its handler. */
let current: number | undefined;
tagOutput(() => current);

const waits = new WaitMeter();

/** A run of one or several calls, with its times, measured or expected. */
interface Run {
  readonly session: Loaded;
  /** Without those that have left it. */
  calls: readonly InstanceCall[];
  readonly join: Joining;
  startMs: number;
  /** When the instance began or resumed the run, and how long it had worked on it and waited before. */
  turnMs: number;
  /** When the latest step of a handler began. */
  stepMs: number;
  busyMs: number;
  coreWaitMs: number;
  disk: DiskRead | undefined;
  loaded: LoadedLate | undefined;
  mixing: string | undefined;
  /** Ends the message that started or resumed the run. */
  letGo: () => void;
}

/** A call, and the run that it is in: it leaves one with others as soon as it waits for the host. */
interface Seat {
  run: Run;
  readonly call: InstanceCall;
  /** Called when it has left. */
  left: () => void;
}

/** Runs that wait for the host, by the id of what they asked. */
const asking = new Map<number, { readonly run: Run; readonly back: (answers: readonly OtherAnswered[]) => void }>();
let nextAsking = 0;

async function load(header: ToInstance & { op: 'load' }): Promise<void> {
  const { session, handlerPath, lazily } = header;
  const startMs = performance.now();
  const before = heap.ownBytes();
  host.send({ op: 'loading' });
  try {
    const handler = handlerPath === undefined ? undefined : await loadHandler(handlerPath, session);
    const model = new InstanceModel(header);
    const { sharedProblem } = lazily ? {} : await model.load();
    const loadMs = performance.now() - startMs;
    const bytes = heap.ownBytes() - before;
    sessions.set(session, { number: session, model, handler });
    host.send({ op: 'loaded', loadMs, bytes, ...given({ sharedProblem, disk: waits.of(loadMs).disk }) });
  } catch (error) {
    host.send({ op: 'load-failed', message: messageOf(error) });
  }
}

/**
 * The C library keeps what is freed until it is asked to return it, which takes 0.1 ms for a small session, 1.4 ms for one of
 * 8 MB and 52 ms for one of 64 MB (on a busy machine); the process runs nothing meanwhile.
 */
function release({ session }: ToInstance & { op: 'release' }): undefined {
  sessions.get(session)?.model.release();
  sessions.delete(session);
  heap.trim();
  host.send({ op: 'released' });
}

/**
 * Runs a message's calls: every preprocess, as few runs of the model as they can share, every postprocess. Without a
 * handler all is done when this returns: a promise for each step would take longer than a small model.
 */
function run(header: ToInstance & { op: 'run' }, message: Message<ToInstance>): Promise<void> | undefined {
  const startMs = performance.now();
  const session = sessions.get(header.session);
  if (session === undefined) throw new Error(`a run came for session ${header.session}, which is not loaded`);
  // A handler may keep what it gets, and other messages come before the run is over.
  const isAtOnce = session.handler === undefined && session.model.isLoaded;
  const { tensors } = isAtOnce ? message : owned(message);
  const { join } = header;
  const mine: Run = {
    session,
    calls: takeCalls(header.calls, tensors),
    join,
    startMs,
    turnMs: startMs,
    stepMs: startMs,
    busyMs: 0,
    coreWaitMs: 0,
    disk: undefined,
    loaded: undefined,
    mixing: undefined,
    letGo: () => undefined,
  };
  if (!isAtOnce) return holding(mine, () => runSteps(mine, header.asksForModel));
  runModel(mine);
  answer(mine);
  message.release?.();
  return undefined;
}

/** Works until the run is done or waits for the host, whose answers resume it. */
function holding(mine: Run, work: () => Promise<void>): Promise<void> {
  return new Promise((resolve) => {
    mine.letGo = resolve;
    void work().then(() => mine.letGo());
  });
}

async function runSteps(mine: Run, asksForModel = false): Promise<void> {
  const first = async (seat: Seat): Promise<void> => {
    await preprocess(seat);
    if (asksForModel && seat.call.error === undefined) await askForModel(seat);
  };
  for (const call of mine.calls) await unlessItLeaves(mine, call, first, runAndAnswer);
  await runAndAnswer(mine);
}

async function runAndAnswer(mine: Run): Promise<void> {
  // Its call has come back in another run.
  if (mine.calls.length === 0) return;
  await infer(mine);
  for (const call of mine.calls) await unlessItLeaves(mine, call, postprocess, answer);
  answer(mine);
}

/** Resolves when the step of the call is over, or the call has left the run, in one of its own that goes on by itself. */
async function unlessItLeaves(
  mine: Run,
  call: InstanceCall,
  step: (seat: Seat) => Promise<void>,
  goOn: (own: Run) => Promise<void> | void,
): Promise<void> {
  const seat: Seat = { run: mine, call, left: () => undefined };
  const left = new Promise<void>((resolve) => (seat.left = resolve));
  const done = step(seat);
  await Promise.race([done, left]);
  if (seat.run === mine) return;
  void done.then(() => goOn(seat.run)).then(() => seat.run.letGo());
}

/** Has the host run the model of the call, unless this process is to run it after all. */
async function askForModel(seat: Seat): Promise<void> {
  const { call } = seat;
  call.inferStartMs = performance.now();
  const [answered] = await new Promise<readonly OtherAnswered[]>((back) => leave(seat, 'model', call.inputs, back));
  if (answered === undefined) return;
  const { header, tensors } = answered;
  if (header.kind === 'error') call.error = { kind: 'error', code: 'inference-failed', message: header.message };
  else {
    call.isElsewhere = true;
    call.outputs = tensors;
    call.inferEndMs = seat.run.turnMs;
  }
}

/** A call waits for other functions, or for its model; `back` is called with the answers. */
function leave(
  seat: Seat,
  asked: (FromInstance & { op: 'ask' })['asked'],
  tensors: readonly Tensor[],
  back: (answers: readonly OtherAnswered[]) => void,
): void {
  const id = nextAsking++;
  const { run: from, call } = seat;
  const at = from.calls.indexOf(call);
  const isPart = from.calls.length > 1;
  worked(from);
  if (isPart) {
    // The time of its steps is its own.
    const busyMs = from.turnMs - from.stepMs;
    from.busyMs -= busyMs;
    from.calls = from.calls.filter((each) => each !== call);
    seat.run = { ...from, calls: [call], busyMs, coreWaitMs: 0, disk: undefined, loaded: undefined, mixing: undefined };
  }
  asking.set(id, { run: seat.run, back });
  host.send({ op: 'ask', id, call: at, asked }, tensors);
  if (isPart) seat.left();
  else from.letGo();
}

function comeBack({ ids, answers }: ToInstance & { op: 'answered' }, tensors: readonly Tensor[]): Promise<void> {
  const [first, ...others] = ids.map((id) => asking.get(id)!);
  for (const id of ids) asking.delete(id);
  if (first === undefined) return Promise.resolve();
  const { run: mine } = first;
  for (const { run: other, back } of others) {
    mine.calls = [...mine.calls, ...other.calls];
    mine.startMs = Math.max(mine.startMs, other.startMs);
    mine.busyMs += other.busyMs;
    mine.coreWaitMs += other.coreWaitMs;
    other.calls = [];
    back([]);
  }
  return new Promise((resolve) => {
    mine.letGo = resolve;
    mine.turnMs = performance.now();
    first.back(withTensors(answers, tensors));
  });
}

function takeCalls(headers: readonly CallHeader[], tensors: readonly Tensor[]): InstanceCall[] {
  return withTensors(headers, tensors).map(({ header, tensors: mine }): InstanceCall => ({
    header,
    // Copies: a handler may change what it gets, and messages share their headers.
    request:
      header.kind === 'request'
        ? handlerCall({ ...header, headers: { ...header.headers }, body: bodyIn(mine) })
        : undefined,
    inputs: header.kind === 'tensors' ? mine : [],
    outputs: [],
    preprocessMs: 0,
    loadMs: 0,
    inferStartMs: 0,
    inferEndMs: 0,
    postprocessMs: 0,
    batch: 1,
    batchRows: undefined,
    response: undefined,
    error: undefined,
    isElsewhere: false,
  }));
}

function phase(name: Phase, call: number): void {
  host.send({ op: 'phase', phase: name, call });
}

/** Runs one step of a call's handler, which may ask other functions. */
function step<Result>(
  name: 'preprocess' | 'postprocess',
  seat: Seat,
  act: (context: HandlerContext) => Promise<Result>,
): Promise<Result> {
  const { run: mine, call } = seat;
  phase(name, mine.calls.indexOf(call));
  mine.stepMs = performance.now();
  const others: OtherCalls = new OtherCalls((asked) => {
    const headers = asked.map(({ header }) => header);
    const tensors = asked.flatMap((each) => each.tensors);
    leave(seat, headers, tensors, (answers) => others.back(answers));
  });
  return others.during(() => act(others.context));
}

async function preprocess(seat: Seat): Promise<void> {
  const { call } = seat;
  const { handler, model } = seat.run.session;
  const { request } = call;
  if (request === undefined || handler === undefined) return;
  const startMs = performance.now();
  try {
    call.inputs = await step('preprocess', seat, (context) => runPreprocess(handler, request, context));
    const { inputNames, optionalInputs } = model;
    if (inputNames !== undefined) checkGiven(call.inputs, inputNames, optionalInputs);
  } catch (error) {
    call.error = failure(error);
  }
  call.preprocessMs = performance.now() - startMs;
}

/** Runs the model for the calls so far, and loads it first if it is not loaded yet. */
async function infer(mine: Run): Promise<void> {
  const calls = mine.calls.filter(isToRun);
  const { model, handler } = mine.session;
  if (calls.length === 0) return;
  if (!model.isLoaded) await loadLate(mine, calls, model);
  if (handler !== undefined) phase('infer', 0);
  runModel(mine);
}

function runModel(mine: Run): void {
  const { session, calls, join } = mine;
  const ready = calls.every(isToRun) ? calls : calls.filter(isToRun);
  mine.mixing = session.model.run(ready, join);
}

const isToRun = ({ error, isElsewhere }: InstanceCall): boolean => error === undefined && !isElsewhere;

async function loadLate(mine: Run, calls: readonly InstanceCall[], late: InstanceModel): Promise<void> {
  phase('load', 0);
  try {
    mine.loaded = await late.load();
    for (const call of calls) call.loadMs = mine.loaded.loadMs;
  } catch (error) {
    const message = messageOf(error);
    for (const call of calls) call.error = { kind: 'error', code: 'model-load-failed', message };
  }
}

async function postprocess(seat: Seat): Promise<void> {
  const { call } = seat;
  const { handler } = seat.run.session;
  const { request } = call;
  if (request === undefined || handler === undefined || call.error !== undefined) return;
  const startMs = performance.now();
  try {
    call.response = await step('postprocess', seat, (context) =>
      runPostprocess(handler, call.outputs, request, context),
    );
  } catch (error) {
    call.error = failure(error);
  }
  call.postprocessMs = performance.now() - startMs;
}

/** The run is over, or a call of it waits for the host. */
function worked(mine: Run, untilMs = performance.now()): void {
  const tookMs = untilMs - mine.turnMs;
  mine.turnMs = untilMs;
  const { coreMs, disk } = waits.of(tookMs);
  mine.busyMs += tookMs;
  mine.coreWaitMs += coreMs;
  if (disk === undefined) return;
  const { bytes = 0, ms = 0 } = mine.disk ?? {};
  mine.disk = { bytes: bytes + disk.bytes, ms: ms + disk.ms };
}

function answer(mine: Run): void {
  const { calls, startMs, loaded, mixing } = mine;
  const replies: Tensor[] = [];
  const results = calls.map((call) => resultOf(call, replies));
  const times = calls.map(({ inferStartMs, inferEndMs, loadMs, preprocessMs, postprocessMs }) => ({
    waitMs: inferStartMs - startMs - preprocessMs - loadMs,
    loadMs,
    preprocessMs,
    inferMs: inferEndMs - inferStartMs,
    postprocessMs,
  }));
  worked(mine);
  host.send({ op: 'ran', results, ...given({ loaded, mixing }) }, [timesTensor(mine, times), ...replies]);
  heap.trimWhenIdle();
}

/** @param replies are given the tensors of the result */
function resultOf({ error, response, outputs, batch, batchRows }: InstanceCall, replies: Tensor[]): ResultHeader {
  if (error !== undefined) return error;
  if (response === undefined) {
    replies.push(...outputs);
    return { kind: 'tensors', count: outputs.length, batch, batchRows };
  }
  const { status, headers, body } = response;
  replies.push(bodyTensor(body));
  return { kind: 'response', status, headers, batch, batchRows };
}

/** Undefined: it is done. */
function take(message: Message<ToInstance>): Promise<void> | undefined {
  const { header } = message;
  current = sessionOf(header) ?? current;
  switch (header.op) {
    case 'load':
      return load(header);
    case 'go-offline':
      if (!goOffline())
        console.error('this system cannot keep a process off the network; the command `doctor` tells why');
      return undefined;
    case 'release':
      return release(header);
    case 'run':
      return run(header, message);
    case 'answered':
      return comeBack(header, owned(message).tensors);
  }
}

function sessionOf(header: ToInstance): number | undefined {
  switch (header.op) {
    case 'load':
    case 'release':
    case 'run':
      return header.session;
    case 'answered':
      return asking.get(header.ids[0]!)?.run.session.number;
    case 'go-offline':
      return undefined;
  }
}

// A timer or promise that a handler left behind has thrown. The state of its module is unknown, so nothing more is
// started, and the host ends the process.
process.once('uncaughtException', (error: unknown) => {
  last = new Promise(() => undefined);
  waiting++;
  const session = error instanceof Error ? sessionOfStack(error.stack ?? '') : undefined;
  current = session ?? current;
  console.error(handlerStack(error) ?? error);
  const reason = `an error that nothing caught: ${messageOf(error)}`;
  host.send({ op: 'dying', reason, ...(session === undefined ? {} : { session }) });
});

heap.keepForRuns();
host.send({ op: 'started' });
