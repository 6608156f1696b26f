/**
 * What queueing costs on the CPU where runs are short: calls and messages a second of one function, and quiet functions
 * beside a flood in the same process. Everything goes through a scheduler, as in a worker.
 */
import { Instance } from '../src/cpu/instance/index.ts';
import type { PoolInput } from '../src/cpu/index.ts';
import { LiveCpu, LiveScheduler, type CpuNeed } from '../src/live/index.ts';
import { policies } from '../src/schedule/index.ts';
import { tensorOf } from '../src/tensor/index.ts';
import { tableOf, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { headOf, type Head } from './many/models.ts';
import { closedLoop } from './shared/arrivals.ts';
import { mediansOf, percentiles } from './shared/statistics.ts';

/** All functions share one process, so that they wait for each other. */
const cores = 1;
const quietFunctions = 8;
/** Between two calls of each quiet function. */
const quietEveryMs = 40;
const rounds = 5;
const settings = { sloMs: 1e10, priority: 2 ** 31 - 1 };

export const benchmark: Benchmark = {
  name: 'one-process',
  description: 'short runs in one process: rate, calls per message, and quiet functions beside a flood',
  run,
};

interface Scene {
  readonly title: string;
  /** Of the weights of the function with many calls: the table says how long its runs take. */
  readonly kibibytes: number;
  /** Its calls under way at once. */
  readonly callers: number;
  readonly hasQuiet: boolean;
}

const scenes: readonly Scene[] = [
  { title: 'one caller', kibibytes: 1, callers: 1, hasQuiet: false },
  { title: '64 callers', kibibytes: 1, callers: 64, hasQuiet: false },
  { title: '64 callers of runs of some 50 us', kibibytes: 256, callers: 64, hasQuiet: false },
  { title: '256 callers beside quiet functions', kibibytes: 1, callers: 256, hasQuiet: true },
  { title: '256 callers of longer runs beside quiet functions', kibibytes: 4096, callers: 256, hasQuiet: true },
];

interface Figures {
  readonly perSecond: number;
  readonly callsPerMessage: number;
  /** Of the model alone, of the function with many calls. */
  readonly runUs: number;
  /** Of this process, which has the scheduler and the pools: hardly depends on what else the machine does. */
  readonly hostUsPerCall: number;
  readonly quietP50Ms: number;
  readonly quietP99Ms: number;
}

async function run({ small, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const forMs = small ? 150 : 2000;
  const turns = small ? 1 : rounds;
  const measured: (readonly [Scene, Figures])[] = [];
  for (const scene of scenes) {
    progress(scene.title);
    measured.push([scene, await measure(scene, forMs, turns)]);
  }
  return {
    settings: { cores, rounds: turns, roundMs: forMs, quietFunctions, quietEveryMs },
    tables: [
      tableOf('One process, through the scheduler', measured, [
        ['scene', ([{ title }]) => title],
        ['>calls/s', ([, figures]) => figures.perSecond.toFixed(0)],
        ['>calls per message', ([, figures]) => figures.callsPerMessage.toFixed(1)],
        ['>run us', ([, figures]) => figures.runUs.toFixed(0)],
        ['>host CPU us/call', ([, figures]) => figures.hostUsPerCall.toFixed(1)],
        ['>quiet p50 ms', ([{ hasQuiet }, figures]) => (hasQuiet ? figures.quietP50Ms.toFixed(2) : '-')],
        ['>quiet p99 ms', ([{ hasQuiet }, figures]) => (hasQuiet ? figures.quietP99Ms.toFixed(2) : '-')],
      ]),
    ],
    figures: Object.fromEntries(
      measured.flatMap(([{ title }, figures]) =>
        Object.entries(figures).map(([name, value]) => [`${title}: ${name}`, Number(value)]),
      ),
    ),
    limits: ['the callers are in the process of the scheduler, which is what limits the rate of such short runs'],
  };
}

async function measure(scene: Scene, forMs: number, turns: number): Promise<Figures> {
  const busy = await headOf(scene.kibibytes, 0);
  const quiet = await Promise.all(
    Array.from({ length: scene.hasQuiet ? quietFunctions : 0 }, (_, index) => headOf(1, index + 1)),
  );
  await using machine = new Machine([busy, ...quiet]);
  using messages = countMessages();
  for (let index = 0; index <= quiet.length; index++) for (let turn = 0; turn < 10; turn++) await machine.call(index);
  await closedLoop(scene.callers, performance.now() + 200, () => machine.call(0));
  const found: Figures[] = [];
  for (let turn = 0; turn < turns; turn++) {
    const untilMs = performance.now() + forMs;
    messages.begin();
    const startMs = performance.now();
    const before = process.cpuUsage();
    const quietMs: number[] = [];
    machine.busyMs = 0;
    const others = quiet.map(async (_, index) => {
      while (performance.now() < untilMs) {
        await new Promise((resolve) => setTimeout(resolve, quietEveryMs));
        quietMs.push(await machine.call(index + 1));
      }
    });
    const calls = await closedLoop(scene.callers, untilMs, () => machine.call(0));
    const tookMs = performance.now() - startMs;
    await Promise.all(others);
    const { user, system } = process.cpuUsage(before);
    const all = calls + quietMs.length;
    const quietOnes = quietMs.length === 0 ? { p50Ms: 0, p99Ms: 0 } : percentiles(quietMs);
    found.push({
      perSecond: (calls / tookMs) * 1000,
      callsPerMessage: all / Math.max(1, messages.count),
      runUs: (machine.busyMs / Math.max(1, calls)) * 1000,
      hostUsPerCall: (user + system) / all,
      quietP50Ms: quietOnes.p50Ms,
      quietP99Ms: quietOnes.p99Ms,
    });
  }
  return mediansOf(found);
}

/** The runs that processes are sent, each of which holds one call or several. */
function countMessages() {
  const { prototype } = Instance;
  type Send = (this: Instance, ...given: Parameters<Instance['run']>) => void;
  const send: Send = Reflect.get(prototype, 'run');
  const counted = {
    count: 0,
    begin: (): void => void (counted.count = 0),
    [Symbol.dispose]: (): void => void (prototype.run = send),
  };
  prototype.run = function (this: Instance, ...given): void {
    counted.count++;
    send.apply(this, given);
  };
  return counted;
}

/** A CPU with its scheduler, and functions of these heads. */
class Machine implements AsyncDisposable {
  readonly #cpu: LiveCpu;
  readonly #live: LiveScheduler;
  readonly #inputs: readonly PoolInput[];
  /** That runs of the first function took. */
  busyMs = 0;

  constructor(heads: readonly Head[]) {
    const need: CpuNeed = { settings, threads: 1, modelBytes: 1, latencyMs: undefined };
    this.#cpu = new LiveCpu({
      needOf: () => need,
      cores,
      blankInstances: 0,
      memoryBytes: 2 ** 31,
      log: () => undefined,
    });
    this.#live = new LiveScheduler({ ...this.#cpu.asPlace, policy: policies.best, waitingMax: 10_000 });
    this.#cpu.join(this.#live);
    for (const [index, { modelPath }] of heads.entries()) {
      this.#cpu.pools.register(
        { key: keyOf(index), modelPath, threads: 1, modelBytes: 1 },
        {
          instancesMin: 0,
          instancesMax: 1,
          batchMax: 1,
          batchDelayMs: 0,
          idleMs: 3_600_000,
          handlerTimeoutMs: 10_000,
          loadTimeoutMs: 60_000,
          inferTimeoutMs: 60_000,
        },
      );
    }
    this.#inputs = heads.map(({ width }) => ({
      kind: 'tensors',
      tensors: [tensorOf('x', 'FP32', [1, width], new Float32Array(width).fill(0.5))],
    }));
  }

  /** Milliseconds until its answer. */
  async call(index: number): Promise<number> {
    const startMs = performance.now();
    const { timings } = await this.#cpu.run({ key: keyOf(index), settings }, this.#inputs[index]!, {}, {});
    if (index === 0) this.busyMs += timings.inferMs;
    return performance.now() - startMs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#live.close();
    await this.#cpu.pools.stop(0);
  }
}

const keyOf = (index: number): string => `head-${index}@1`;
