/** One core's thread: opens sub-graphs as sessions of ONNX Runtime and runs them, in the order of its messages. See cpu-cores.ts. */
import { parentPort, workerData } from 'node:worker_threads';
import type * as OrtModule from 'onnxruntime-node';
import { pinThread } from '../../hardware/index.ts';
import type { CpuCoreThreadOptions, FromCpuCore, ToCpuCore } from './cpu-core-protocol.ts';
import { fromLoose, oneCoreSession, ort, toLoose, viewHostTensor } from './one-core-session.ts';
import type { CpuCall, CpuCallResult, LooseTensor } from './types.ts';

/** Calls of one sub-graph whose tensors are kept made: all cells of a recurrent layer are calls of one, each with its own places. */
const keptCallsMax = 1024;

type Tensors = Record<string, OrtModule.Tensor>;

interface PreparedCall {
  readonly feeds: Tensors;
  readonly fetches: Record<string, OrtModule.Tensor | null>;
  readonly loose: readonly string[];
}

interface OpenPart {
  readonly session: OrtModule.InferenceSession;
  readonly calls: Map<string, PreparedCall>;
}

/** By number; a sentence for those that could not be opened. */
const parts = new Map<number, OpenPart | string>();

function prepare({ inputs, outputs, loose }: CpuCall): PreparedCall {
  const feeds: Tensors = {};
  for (const input of inputs) feeds[input.name] = 'address' in input ? viewHostTensor(input) : fromLoose(input);
  const fetches: PreparedCall['fetches'] = {};
  for (const output of outputs) fetches[output.name] = viewHostTensor(output);
  for (const name of loose) fetches[name] = null;
  return { feeds, fetches, loose };
}

/** A call by its text: views on native memory stay valid to make, and are touched by no one between calls. */
function preparedCall({ calls }: OpenPart, text: string): PreparedCall {
  let call = calls.get(text);
  if (call === undefined) {
    if (calls.size >= keptCallsMax) calls.clear();
    call = prepare(JSON.parse(text) as CpuCall);
    calls.set(text, call);
  }
  return call;
}

async function open(part: number, modelPath: string): Promise<null> {
  try {
    parts.set(part, { session: await ort.InferenceSession.create(modelPath, oneCoreSession), calls: new Map() });
  } catch (error) {
    parts.set(part, messageOf(error));
    throw error;
  }
  return null;
}

async function run(number: number, call: string | CpuCall): Promise<CpuCallResult> {
  const part = parts.get(number);
  if (part === undefined || typeof part === 'string') throw new Error(part ?? 'it is not open');
  const { feeds, fetches, loose } = typeof call === 'string' ? preparedCall(part, call) : prepare(call);
  const startMs = performance.now();
  const results = await part.session.run(feeds, fetches);
  const runMs = performance.now() - startMs;
  return { runMs, loose: loose.map((name): LooseTensor => toLoose(name, results[name]!)) };
}

async function release(number: number): Promise<null> {
  const part = parts.get(number);
  parts.delete(number);
  if (typeof part === 'object') await part.session.release();
  return null;
}

function carryOut(message: ToCpuCore): Promise<CpuCallResult | null> {
  switch (message.op) {
    case 'open':
      return open(message.part, message.modelPath);
    case 'run':
      return run(message.part, message.call);
    case 'release':
      return release(message.part);
    case 'stop':
      return Promise.resolve(null);
  }
}

async function take(message: ToCpuCore): Promise<void> {
  if (Atomics.load(stop, 0) !== 0) {
    parentPort!.close();
    return;
  }
  let answer: FromCpuCore;
  try {
    answer = { id: message.id, ok: true, result: await carryOut(message) };
  } catch (error) {
    answer = { id: message.id, ok: false, message: messageOf(error) };
  }
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
  parentPort!.postMessage(answer);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const { pinTo, stop } = workerData as CpuCoreThreadOptions;
// Where the core is not allowed, the operating system places the thread.
if (pinTo !== null) pinThread(0, [pinTo]);
/** What a core is given it does in order, one at a time. */
let last = Promise.resolve();
parentPort!.on('message', (message: ToCpuCore) => {
  last = last.then(() => take(message));
});
