/**
 * The process of one CPU instance: one ONNX Runtime session, at most one handler. It starts blank, is told once what to
 * become, and ends when its socket closes, so that it never outlives its host. See protocol.ts for what is said.
 */
import { writeFileSync } from 'node:fs';
import { Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { encodeMessage, FrameDecoder, type Message, type Tensor } from '../tensor/index.ts';
import type { Handler } from './handler.ts';
import { handlerCall, HandlerError, loadHandler, messageOf, runPostprocess, runPreprocess } from './handler-runner.ts';
import { failure, InstanceModel, type InstanceCall } from './instance-model.ts';
import {
  socketFd,
  type CallHeader,
  type CallTimes,
  type FromInstance,
  type LoadedLate,
  type Phase,
  type ResultHeader,
  type ToInstance,
} from './protocol.ts';

const socket = new Socket({ fd: socketFd, readable: true, writable: true });
const decoder = new FrameDecoder<ToInstance>();

let model: InstanceModel | undefined;
let handler: Handler | undefined;

/** A run of several calls or of one, as far as it is known to take or has taken. */
interface Run {
  readonly calls: readonly InstanceCall[];
  readonly join: boolean;
  readonly startMs: number;
  busyMs: number;
  loaded: LoadedLate | undefined;
}

/** Runs whose model the host runs, by the number under which it was asked. */
const halfway = new Map<number, Run>();

function send(header: FromInstance, tensors: readonly Tensor[] = []): void {
  const buffers = encodeMessage({ header, tensors });
  if (buffers.length === 1 && buffers[0] !== undefined) {
    socket.write(buffers[0]);
    return;
  }
  socket.cork();
  for (const buffer of buffers) socket.write(buffer);
  socket.uncork();
}

/**
 * A handler that never returns keeps this thread from seeing that the socket has closed, so a second thread looks after
 * the host. (A native run always comes to an end, so functions without a handler do not pay for this.)
 */
function endWithHost(): void {
  const source = `
    const host = process.ppid;
    setInterval(() => { if (process.ppid !== host) process.kill(process.pid, 'SIGKILL'); }, 1000);`;
  new Worker(source, {
    eval: true,
    resourceLimits: { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 2 },
  }).unref();
}

async function load(header: ToInstance & { op: 'load' }): Promise<void> {
  const { modelPath, handlerPath, session, inputNames, lazily = false } = header;
  const startMs = performance.now();
  send({ op: 'loading' });
  try {
    if (handlerPath !== undefined) {
      endWithHost();
      handler = await loadHandler(handlerPath);
    }
    model = new InstanceModel(modelPath, session, inputNames);
    const { sharedProblem } = lazily ? {} : await model.load();
    const loadMs = performance.now() - startMs;
    send({ op: 'loaded', loadMs, ...(sharedProblem === undefined ? {} : { sharedProblem }) });
  } catch (error) {
    send({ op: 'load-failed', message: messageOf(error) });
  }
}

/** Runs a message's calls: every preprocess, then as few runs of the model as they can share, then every postprocess. */
async function run(header: ToInstance & { op: 'run' }, tensors: readonly Tensor[]): Promise<void> {
  const startMs = performance.now();
  const calls = takeCalls(header.calls, tensors);
  for (const [index, call] of calls.entries()) await preprocess(index, call);
  const mine: Run = { calls, join: header.join, startMs, busyMs: 0, loaded: undefined };
  const [only] = calls;
  if (header.askAs !== undefined && only !== undefined && only.error === undefined) {
    only.inferStartMs = performance.now();
    mine.busyMs = only.inferStartMs - startMs;
    halfway.set(header.askAs, mine);
    send({ op: 'run-model', id: header.askAs }, only.inputs);
    return;
  }
  await infer(mine);
  await finish(mine, startMs);
}

/** The second half of a run whose model the host ran, or did not. */
async function continueRun(header: ToInstance & { op: 'model-ran' }, tensors: readonly Tensor[]): Promise<void> {
  const { id, outcome } = header;
  const mine = halfway.get(id);
  const [call] = mine?.calls ?? [];
  if (mine === undefined || call === undefined) return;
  halfway.delete(id);
  const turnMs = performance.now();
  switch (outcome) {
    case 'outputs':
      call.outputs = tensors;
      call.inferEndMs = turnMs;
      break;
    case 'here':
      await infer(mine);
      break;
    case 'failed':
      call.error = { kind: 'error', code: 'inference-failed', message: 'the model was not run' };
      break;
  }
  await finish(mine, turnMs);
}

/** Cut to whole microseconds: the sixteen digits of a double are noise, and text to send and to parse. */
function toMicroseconds(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

function takeCalls(headers: readonly CallHeader[], tensors: readonly Tensor[]): InstanceCall[] {
  let at = 0;
  return headers.map((header): InstanceCall => {
    const mine = tensors.slice(at, (at += header.kind === 'tensors' ? header.count : 1));
    const body = mine[0]?.data ?? new Uint8Array();
    return {
      header,
      request: header.kind === 'request' ? handlerCall({ ...header, body }) : undefined,
      inputs: header.kind === 'tensors' ? mine : [],
      outputs: [],
      preprocessMs: 0,
      loadMs: 0,
      inferStartMs: 0,
      inferEndMs: 0,
      batch: 1,
      error: undefined,
    };
  });
}

function phase(name: Phase, call: number): void {
  send({ op: 'phase', phase: name, call });
}

async function preprocess(index: number, call: InstanceCall): Promise<void> {
  if (call.request === undefined || handler === undefined) return;
  phase('preprocess', index);
  const startMs = performance.now();
  try {
    call.inputs = await runPreprocess(handler, call.request);
    const { inputNames } = model ?? {};
    if (inputNames !== undefined) checkGiven(call.inputs, inputNames);
  } catch (error) {
    call.error = failure(error);
  }
  call.preprocessMs = performance.now() - startMs;
}

/** ONNX Runtime would speak of its 'feeds'. */
function checkGiven(tensors: readonly Tensor[], inputs: readonly string[]): void {
  const given = tensors.map(({ name }) => name);
  const missing = inputs.find((name) => !given.includes(name));
  const unknown = given.find((name) => !inputs.includes(name));
  if (missing === undefined && unknown === undefined) return;
  const problem =
    missing === undefined ? `gave '${unknown}', which is no input` : `did not give the input '${missing}'`;
  throw new HandlerError('handler-failed', `the handler's preprocess ${problem} of the model (it gave ${list(given)})`);
}

function list(names: readonly string[]): string {
  return names.length === 0 ? 'nothing' : names.map((name) => `'${name}'`).join(', ');
}

/** Runs the model for the calls that have come so far, and loads it for them where nobody has needed it yet. */
async function infer(mine: Run): Promise<void> {
  const calls = mine.calls.filter((call) => call.error === undefined);
  if (calls.length > 0 && model?.isLoaded === false) await loadLate(mine, calls, model);
  if (handler !== undefined) phase('infer', 0);
  await model?.run(
    calls.filter((call) => call.error === undefined),
    mine.join,
  );
}

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

/** @param turnMs when the instance turned to it, or turned to it again */
async function finish(mine: Run, turnMs: number): Promise<void> {
  const { calls, startMs, loaded } = mine;
  const results: ResultHeader[] = [];
  const replies: Tensor[] = [];
  for (const [index, call] of calls.entries()) results.push(await finishCall(index, call, startMs, replies));
  const busyMs = toMicroseconds(mine.busyMs + performance.now() - turnMs);
  send({ op: 'ran', busyMs, results, ...(loaded === undefined ? {} : { loaded }) }, replies);
}

async function finishCall(
  index: number,
  call: InstanceCall,
  startMs: number,
  replies: Tensor[],
): Promise<ResultHeader> {
  if (call.error !== undefined) return call.error;
  const { batch, preprocessMs, loadMs, inferStartMs, inferEndMs } = call;
  const times = (postprocessMs: number): CallTimes => ({
    waitMs: toMicroseconds(inferStartMs - startMs - preprocessMs - loadMs),
    ...(loadMs === 0 ? {} : { loadMs: toMicroseconds(loadMs) }),
    preprocessMs: toMicroseconds(preprocessMs),
    inferMs: toMicroseconds(inferEndMs - inferStartMs),
    postprocessMs: toMicroseconds(postprocessMs),
  });
  if (call.request === undefined || handler === undefined) {
    replies.push(...call.outputs);
    return { kind: 'tensors', count: call.outputs.length, batch, times: times(0) };
  }
  phase('postprocess', index);
  const postprocessStartMs = performance.now();
  try {
    const { status, headers, body } = await runPostprocess(handler, call.outputs, call.request);
    replies.push({ name: 'body', datatype: 'UINT8', shape: [body.byteLength], data: body });
    return { kind: 'response', status, headers, batch, times: times(performance.now() - postprocessStartMs) };
  } catch (error) {
    return failure(error);
  }
}

async function take(message: Message<ToInstance>): Promise<void> {
  const { header, tensors } = message;
  switch (header.op) {
    case 'load':
      return load(header);
    case 'run':
      return run(header, tensors);
    case 'model-ran':
      return continueRun(header, tensors);
  }
}

/** Messages are taken strictly one after the other. */
let last: Promise<void> = Promise.resolve();

socket.on('data', (chunk: Buffer) => {
  for (const message of decoder.push(chunk)) last = last.then(() => take(message));
});
socket.on('close', () => process.exit(0));
socket.on('error', () => process.exit(0));
// A Ctrl-C in the terminal reaches the whole process group; the host drains first and closes the socket when it is done.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => undefined);

// A timer or promise that a handler left behind. What state its module is in nobody knows, so the process ends.
process.on('uncaughtException', (error: unknown) => {
  console.error(error);
  send({ op: 'dying', reason: `an error that nothing caught: ${messageOf(error)}` });
  socket.end(() => process.exit(1));
});
try {
  // When memory runs out, an instance goes before the host does.
  writeFileSync('/proc/self/oom_score_adj', '800');
} catch {
  // Not there on every system, and only a courtesy.
}

send({ op: 'blank' });
