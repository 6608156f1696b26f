/** One of the threads that run a model side by side so that its operators can be timed: see cpu-operators.ts. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import type * as OrtModule from 'onnxruntime-node';
import { pinThread } from '../../hardware/index.ts';
import { signalAt, type CpuOperatorsOptions, type CpuOperatorTimes } from './cpu-operators-protocol.ts';
import { fromLoose, oneCoreSession, ort } from './one-core-session.ts';

/** Long models are run less often: a phase takes about this long, but no fewer runs than the least. */
const phaseMsMax = 2000;
const iterationsMin = 3;
/** How often a thread that waits looks whether all shall stop. */
const lookMs = 100;

const { modelPath, inputs, iterations, folder, pinTo, threads, signals } = workerData as CpuOperatorsOptions;

const isStopped = (): boolean => Atomics.load(signals, signalAt.stop) !== 0;

function arrive(signal: number): void {
  Atomics.add(signals, signal, 1);
  Atomics.notify(signals, signal);
}

function waitForAll(signal: number): void {
  for (
    let count = Atomics.load(signals, signal);
    count < threads && !isStopped();
    count = Atomics.load(signals, signal)
  ) {
    Atomics.wait(signals, signal, count, lookMs);
  }
}

/**
 * Times runs while every other thread runs too: from when all are ready, and for as long as any still times its own.
 * Milliseconds of the timed runs; one run lies before them.
 */
async function timeRuns(session: OrtModule.InferenceSession, ready: number, timed: number): Promise<Float64Array> {
  const taken = inputs.filter(({ name }) => session.inputNames.includes(name));
  const feeds = Object.fromEntries(taken.map((input) => [input.name, fromLoose(input)]));
  const run = async (): Promise<number> => {
    const startMs = performance.now();
    await session.run(feeds);
    return performance.now() - startMs;
  };
  const firstMs = await run();
  const count = Math.min(iterations, Math.max(iterationsMin, Math.floor(phaseMsMax / Math.max(firstMs, 1e-3))));
  arrive(ready);
  waitForAll(ready);
  const times = new Float64Array(count);
  for (let index = 0; index < count && !isStopped(); index++) times[index] = await run();
  arrive(timed);
  while (Atomics.load(signals, timed) < threads && !isStopped()) await run();
  return times;
}

interface ProfileEvent {
  readonly cat?: string;
  readonly name?: string;
  /** Microseconds. */
  readonly dur?: number;
  readonly args?: { readonly op_name?: string };
}

const kernelSuffix = '_kernel_time';

/** The times of every node in ONNX Runtime's profile, run by run, the first one left out. */
function readProfile(count: number): Map<string, Float64Array> {
  const [file] = readdirSync(folder);
  if (file === undefined) throw new Error('ONNX Runtime wrote no profile');
  const events = JSON.parse(readFileSync(join(folder, file), 'utf8')) as readonly ProfileEvent[];
  const seen = new Map<string, number>();
  const nodes = new Map<string, Float64Array>();
  for (const { cat, name = '', dur = 0 } of events) {
    if (cat !== 'Node' || !name.endsWith(kernelSuffix)) continue;
    const node = name.slice(0, -kernelSuffix.length);
    const run = (seen.get(node) ?? 0) - 1;
    seen.set(node, run + 2);
    if (run < 0 || run >= count) continue;
    let times = nodes.get(node);
    if (times === undefined) nodes.set(node, (times = new Float64Array(count)));
    times[run] = dur / 1000;
  }
  return nodes;
}

async function measure(): Promise<CpuOperatorTimes> {
  // Without optimisation every node keeps its name.
  const profiled = await ort.InferenceSession.create(modelPath, {
    ...oneCoreSession,
    graphOptimizationLevel: 'disabled',
    enableProfiling: true,
    profileFilePrefix: join(folder, 'profile'),
  });
  const times = await timeRuns(profiled, signalAt.ready, signalAt.timed);
  profiled.endProfiling();
  await profiled.release();
  if (isStopped()) throw new Error('it was stopped');
  const nodes = readProfile(times.length);
  const session = await ort.InferenceSession.create(modelPath, oneCoreSession);
  const whole = await timeRuns(session, signalAt.readyWhole, signalAt.timedWhole);
  await session.release();
  return { nodes: [...nodes], whole };
}

// Where the core is not allowed, the operating system places the thread.
if (pinTo !== null) pinThread(0, [pinTo]);
try {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
  parentPort!.postMessage(await measure());
} catch (error) {
  Atomics.store(signals, signalAt.stop, 1);
  throw error;
}
