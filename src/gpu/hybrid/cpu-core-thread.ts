/**
 * The thread of cpu-cores.ts: opens sub-graphs as sessions of ONNX Runtime and runs them, in the order of its messages.
 */
import { pinThread } from '../../hardware/index.ts';
import { serve } from '../../process/index.ts';
import { fromOnnxRuntime, toOnnxRuntime, type NativeSession } from '../../tensor/index.ts';
import type { CpuCoreRequest } from './cpu-core-protocol.ts';
import { openOnCore, viewHostTensor } from './one-core-session.ts';
import type { CpuCall, CpuCallResult } from './types.ts';

/**
 * Limit for the prepared calls that a sub-graph keeps. All cells of a recurrent layer are calls of one sub-graph, each
 * with other addresses.
 */
const keptCallsMax = 1024;

type PreparedCall = ReturnType<typeof prepare>;

interface OpenPart {
  readonly session: NativeSession;
  readonly calls: Map<string, PreparedCall>;
}

/** By path; the error message if it could not be opened. */
const parts = new Map<string, OpenPart | string>();

function prepare({ inputs, outputs, loose }: CpuCall) {
  return {
    feeds: inputs.map((input) => ({
      name: input.name,
      value: 'address' in input ? viewHostTensor(input) : toOnnxRuntime(input),
    })),
    /** First the `placed` outputs, which are written in place, then those that ONNX Runtime allocates. */
    fetches: [
      ...outputs.map((output) => ({ name: output.name, value: viewHostTensor(output) })),
      ...loose.map((name) => ({ name, value: null })),
    ],
    placed: outputs.length,
  };
}

/** The call for a JSON text, made once: its tensors are views, so they can be used again. */
function preparedCall({ calls }: OpenPart, text: string): PreparedCall {
  let call = calls.get(text);
  if (call === undefined) {
    if (calls.size >= keptCallsMax) calls.clear();
    call = prepare(JSON.parse(text) as CpuCall);
    calls.set(text, call);
  }
  return call;
}

function open(modelPath: string, pinTo: number | null): null {
  // If the process may not use the core, the operating system places the thread.
  if (pinTo !== null) pinThread(0, [pinTo]);
  try {
    parts.set(modelPath, { session: openOnCore(modelPath), calls: new Map() });
  } catch (error) {
    parts.set(modelPath, error instanceof Error ? error.message : String(error));
    throw error;
  }
  return null;
}

function run(modelPath: string, call: string | CpuCall): CpuCallResult {
  const part = parts.get(modelPath);
  if (part === undefined || typeof part === 'string') throw new Error(part ?? 'it is not open');
  const { feeds, fetches, placed } = typeof call === 'string' ? preparedCall(part, call) : prepare(call);
  const startMs = performance.now();
  const results = part.session.run(feeds, fetches);
  const runMs = performance.now() - startMs;
  return { runMs, loose: results.slice(placed).map(fromOnnxRuntime) };
}

function release(modelPath: string): null {
  const part = parts.get(modelPath);
  parts.delete(modelPath);
  if (typeof part === 'object') part.session.release();
  return null;
}

function carryOut(request: CpuCoreRequest): CpuCallResult | null {
  switch (request.op) {
    case 'open':
      return open(request.modelPath, request.pinTo);
    case 'run':
      return run(request.modelPath, request.call);
    case 'release':
      return release(request.modelPath);
  }
}

serve(async (request: CpuCoreRequest) => ({ answer: carryOut(request) }), { inOrder: true });
