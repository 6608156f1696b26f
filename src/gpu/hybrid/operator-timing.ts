/** Times the operators of a model on one core, in step with other cores that do the same. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { NativeSession, toOnnxRuntime } from '../../tensor/index.ts';
import { signalAt, type OperatorTimes, type OperatorTiming } from './cpu-core-protocol.ts';
import { oneCoreSession, openOnCore } from './one-core-session.ts';

/** A slow model is run less often, so that its timed runs take about this long, but at least `iterationsMin` times. */
const phaseMsMax = 2000;
const iterationsMin = 3;
/** Interval at which a waiting core reads the stop signal. */
const lookMs = 100;

let order: OperatorTiming;

const isStopped = (): boolean => Atomics.load(order.signals, signalAt.stop) !== 0;

function arrive(signal: number): void {
  Atomics.add(order.signals, signal, 1);
  Atomics.notify(order.signals, signal);
}

function waitForAll(signal: number): void {
  for (
    let count = Atomics.load(order.signals, signal);
    count < order.cores && !isStopped();
    count = Atomics.load(order.signals, signal)
  ) {
    Atomics.wait(order.signals, signal, count, lookMs);
  }
}

/**
 * Milliseconds of timed runs, after one run to warm up. All cores begin together, and each goes on running until all
 * have their times.
 */
function timeRuns(session: NativeSession, ready: number, timed: number): Float64Array {
  const taken = order.inputs.filter(({ name }) => session.inputNames.includes(name));
  const feeds = taken.map((input) => ({ name: input.name, value: toOnnxRuntime(input) }));
  const fetches = session.outputNames.map((name) => ({ name, value: null }));
  const run = (): number => {
    const startMs = performance.now();
    session.run(feeds, fetches);
    return performance.now() - startMs;
  };
  const firstMs = run();
  const count = Math.min(order.iterations, Math.max(iterationsMin, Math.floor(phaseMsMax / Math.max(firstMs, 1e-3))));
  arrive(ready);
  waitForAll(ready);
  const times = new Float64Array(count);
  for (let index = 0; index < count && !isStopped(); index++) times[index] = run();
  arrive(timed);
  while (Atomics.load(order.signals, timed) < order.cores && !isStopped()) run();
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

/** Milliseconds of each node by run, from ONNX Runtime's profile, without the first run. */
function readProfile(count: number): Map<string, Float64Array> {
  const [file] = readdirSync(order.folder);
  if (file === undefined) throw new Error('ONNX Runtime wrote no profile');
  const events = JSON.parse(readFileSync(join(order.folder, file), 'utf8')) as readonly ProfileEvent[];
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

/** @throws what ONNX Runtime throws, or if the signal to stop came */
export function timeOperators(timing: OperatorTiming): OperatorTimes {
  order = timing;
  // Only without optimisation every node keeps its name.
  const profiled = new NativeSession(order.modelPath, {
    ...oneCoreSession,
    graphOptimizationLevel: 'disabled',
    enableProfiling: true,
    profileFilePrefix: join(order.folder, 'profile'),
  });
  const times = timeRuns(profiled, signalAt.ready, signalAt.timed);
  profiled.endProfiling();
  profiled.release();
  if (isStopped()) throw new Error('it was stopped');
  const nodes = readProfile(times.length);
  const session = openOnCore(order.modelPath);
  const whole = timeRuns(session, signalAt.readyWhole, signalAt.timedWhole);
  session.release();
  return { nodes: [...nodes], whole };
}
