/**
 * The thread of cpu-cores.ts: opens sub-graphs as sessions of ONNX Runtime, runs them, and times operators, in the order
 * of its messages.
 */
import { workerData } from 'node:worker_threads';
import { pinThread } from '../../hardware/index.ts';
import { serve } from '../../process/index.ts';
import { fromOnnxRuntime, toOnnxRuntime, type NativeSession, type Tensor } from '../../tensor/index.ts';
import { getOrMake } from '../../tools/index.ts';
import type { CpuCoreApi } from './cpu-core-protocol.ts';
import { openOnCore, viewHostTensor } from './one-core-session.ts';
import { timeOperators } from './operator-timing.ts';
import type { CpuCall } from './types.ts';

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

/** Open sub-graphs, by path. */
const parts = new Map<string, OpenPart>();

const partOf = (modelPath: string): OpenPart =>
  getOrMake(parts, modelPath, () => ({ session: openOnCore(modelPath), calls: new Map() }));

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

function run({ modelPath, call }: Parameters<CpuCoreApi['run']>[0]): Tensor[] {
  const part = partOf(modelPath);
  const { feeds, fetches, placed } = typeof call === 'string' ? preparedCall(part, call) : prepare(call);
  return part.session.run(feeds, fetches).slice(placed).map(fromOnnxRuntime);
}

function release(modelPath: string): void {
  const part = parts.get(modelPath);
  parts.delete(modelPath);
  part?.session.release();
}

/** Says in an error what failed. */
function said<Result>(what: string, act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    throw new Error(`${what}: ${(error as Error).message}`, { cause: error });
  }
}

const failed = 'a sub-graph failed on the CPU';

const { pinTo } = workerData as { readonly pinTo: number | null };
// If the process may not use the core, the operating system places the thread.
if (pinTo !== null) pinThread(0, [pinTo]);
serve<CpuCoreApi>({
  open: ({ modelPath }) => void said(failed, () => partOf(modelPath)),
  run: (order) => said(failed, () => run(order)),
  time: (timing) => said('its operators cannot be timed on the CPU', () => timeOperators(timing)),
  release: ({ modelPath }) => release(modelPath),
});
