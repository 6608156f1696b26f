/**
 * The process of one CPU instance: one ONNX Runtime session, at most one handler. It starts blank, is told once what to
 * become, and ends when its socket closes, so that it never outlives its host. See protocol.ts for what is said.
 */
import { writeFileSync } from 'node:fs';
import { Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { encodeMessage, FrameDecoder, type Message, type Tensor } from '../tensor/index.ts';
import { groupCalls, joinInputs, rowsOf, splitOutputs } from './batch.ts';
import type { Handler, HandlerCall } from './handler.ts';
import { handlerCall, HandlerError, loadHandler, messageOf, runPostprocess, runPreprocess } from './handler-runner.ts';
import {
  socketFd,
  type CallHeader,
  type CallTimes,
  type FromInstance,
  type Phase,
  type ResultHeader,
  type ToInstance,
} from './protocol.ts';
import { Session } from './session.ts';

const socket = new Socket({ fd: socketFd, readable: true, writable: true });
const decoder = new FrameDecoder<ToInstance>();

let session: Session | undefined;
let handler: Handler | undefined;
/** Found false when a joined run gave outputs that could not be taken apart; calls then run one by one. */
let joinable = true;

/** One call on its way through the steps. */
interface Call {
  readonly header: CallHeader;
  readonly request: HandlerCall | undefined;
  inputs: readonly Tensor[];
  outputs: readonly Tensor[];
  preprocessMs: number;
  /** Of the run of the model that served it (performance.now()). */
  inferStartMs: number;
  inferEndMs: number;
  batch: number;
  error: ResultHeader | undefined;
}

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
  const startMs = performance.now();
  try {
    if (header.handlerPath !== undefined) {
      endWithHost();
      handler = await loadHandler(header.handlerPath);
    }
    const sharedProblem = await loadSession(header);
    const loadMs = performance.now() - startMs;
    send({ op: 'loaded', loadMs, ...(sharedProblem === undefined ? {} : { sharedProblem }) });
  } catch (error) {
    send({ op: 'load-failed', message: messageOf(error) });
  }
}

/** Gives what was wrong with the prepared model, where there was one that could not be used. */
async function loadSession({ modelPath, session: settings }: ToInstance & { op: 'load' }): Promise<string | undefined> {
  let sharedProblem: string | undefined;
  if (settings.sharedModelPath !== undefined) {
    try {
      session = await Session.loadPrepared(settings.sharedModelPath, settings);
      return undefined;
    } catch (error) {
      sharedProblem = messageOf(error);
    }
  }
  session = await Session.load(modelPath, settings);
  return sharedProblem;
}

/** Runs a message's calls: every preprocess, then as few runs of the model as they can share, then every postprocess. */
async function run(header: ToInstance & { op: 'run' }, tensors: readonly Tensor[]): Promise<void> {
  const startMs = performance.now();
  const calls = takeCalls(header.calls, tensors);
  for (const [index, call] of calls.entries()) await preprocess(index, call);
  if (handler !== undefined) phase('infer', 0);
  await infer(
    calls.filter((call) => call.error === undefined),
    header.join,
  );
  const results: ResultHeader[] = [];
  const replies: Tensor[] = [];
  for (const [index, call] of calls.entries()) results.push(await finish(index, call, startMs, replies));
  send({ op: 'ran', busyMs: toMicroseconds(performance.now() - startMs), results }, replies);
}

/** Cut to whole microseconds: the sixteen digits of a double are noise, and text to send and to parse. */
function toMicroseconds(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

function takeCalls(headers: readonly CallHeader[], tensors: readonly Tensor[]): Call[] {
  let at = 0;
  return headers.map((header): Call => {
    const mine = tensors.slice(at, (at += header.kind === 'tensors' ? header.count : 1));
    const body = mine[0]?.data ?? new Uint8Array();
    return {
      header,
      request: header.kind === 'request' ? handlerCall({ ...header, body }) : undefined,
      inputs: header.kind === 'tensors' ? mine : [],
      outputs: [],
      preprocessMs: 0,
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

async function preprocess(index: number, call: Call): Promise<void> {
  if (call.request === undefined || handler === undefined) return;
  phase('preprocess', index);
  const startMs = performance.now();
  try {
    call.inputs = await runPreprocess(handler, call.request);
    checkGiven(call.inputs, session?.inputNames ?? []);
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

async function infer(calls: readonly Call[], join: boolean): Promise<void> {
  const jobs = calls.map((call) => ({
    inputs: call.inputs,
    outputs: call.header.kind === 'tensors' ? call.header.outputs : undefined,
  }));
  const groups = calls.length === 1 || !join || !joinable ? calls.map((_, index) => [index]) : groupCalls(jobs);
  for (const group of groups) {
    const members = group.flatMap((index) => calls[index] ?? []);
    const memberJobs = group.flatMap((index) => jobs[index] ?? []);
    if (members.length > 1 && (await inferTogether(members, memberJobs))) continue;
    for (const [index, member] of members.entries()) {
      const job = memberJobs[index];
      member.inferStartMs = performance.now();
      try {
        if (session !== undefined && job !== undefined) member.outputs = await session.run(job.inputs, job.outputs);
      } catch (error) {
        member.error = failure(error);
      }
      member.inferEndMs = performance.now();
    }
  }
}

/** False when the calls must run alone after all: one spoils the joint run, or the outputs cannot be taken apart. */
async function inferTogether(
  members: readonly Call[],
  jobs: readonly { inputs: readonly Tensor[]; outputs: readonly string[] | undefined }[],
): Promise<boolean> {
  const inferStartMs = performance.now();
  let outputs: Tensor[];
  try {
    outputs = (await session?.run(joinInputs(jobs), jobs[0]?.outputs)) ?? [];
  } catch {
    return false;
  }
  const rows = jobs.map((job) => rowsOf(job.inputs) ?? 0);
  const parts = splitOutputs(outputs, rows);
  if (parts === undefined) {
    joinable = false;
    return false;
  }
  const inferEndMs = performance.now();
  for (const [index, member] of members.entries()) {
    member.outputs = parts[index] ?? [];
    member.batch = members.length;
    member.inferStartMs = inferStartMs;
    member.inferEndMs = inferEndMs;
  }
  return true;
}

async function finish(index: number, call: Call, startMs: number, replies: Tensor[]): Promise<ResultHeader> {
  if (call.error !== undefined) return call.error;
  const { batch, preprocessMs, inferStartMs, inferEndMs } = call;
  const times = (postprocessMs: number): CallTimes => ({
    waitMs: toMicroseconds(inferStartMs - startMs - preprocessMs),
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

function failure(error: unknown): ResultHeader {
  if (error instanceof HandlerError) {
    const { code, message, status } = error;
    return status === undefined ? { kind: 'error', code, message } : { kind: 'error', code, message, status };
  }
  const message = messageOf(error);
  // ONNX Runtime's words for what the input itself caused; the rest is the model's or the machine's fault.
  const input =
    /INVALID_ARGUMENT|Invalid (rank|dimension|feed)|out of (data )?bounds|out of range|invalid (input|expand|shape)|cannot be broadcast|mismatch|must (be|have) /i;
  return { kind: 'error', code: input.test(message) ? 'inference-input' : 'inference-failed', message };
}

async function take(message: Message<ToInstance>): Promise<void> {
  const { header, tensors } = message;
  switch (header.op) {
    case 'load':
      return load(header);
    case 'run':
      return run(header, tensors);
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
