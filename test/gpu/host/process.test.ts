/** The GPUs of a host whose GPU process dies or hangs, and functions that are pinned there, on the emulated driver. */
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type { GpuFunctionState } from '../../../src/host/gpu/index.ts';
import { GpuError } from '../../../src/gpu/index.ts';
import { GpuHost, type GpuHostOptions } from '../../../src/host/gpu/gpu-host.ts';
import { LiveScheduler, type Placed } from '../../../src/live/index.ts';
import { Statistics } from '../../../src/host/records/statistics.ts';
import type { FunctionVersion } from '../../../src/host/types.ts';
import { ElementType, GraphBuilder, writeModel } from '../../../src/onnx/index.ts';
import { policies } from '../../../src/schedule/index.ts';
import { tensorOf } from '../../../src/tensor/index.ts';
import { buildEmulatedDriver, type EmulatedDriver } from '../../emulated-driver/build.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';
import { wave } from '../../support/unrolling.ts';
import { waitLimitMs } from '../../time-limits.ts';
import { FakeStore, functionVersion, metadata, spec } from '../../host/fake-store.ts';

const width = 64;
const mebibyte = 2 ** 20;

interface LogLine {
  readonly msg: string;
  readonly reason?: string;
  readonly delayMs?: number;
}

let folder: string;
let modelPath: string;
let otherPath: string;
let driver: EmulatedDriver;
let store: FakeStore;
let host: GpuHost | undefined;
let lines: LogLine[];
let lineWaiters: (() => void)[];

async function lineOf(isIt: (line: LogLine) => boolean): Promise<LogLine> {
  for (;;) {
    const found = lines.find(isIt);
    if (found !== undefined) return found;
    await new Promise<void>((resolve) => lineWaiters.push(resolve));
  }
}

/** So slow that a GPU is the better place on any machine. */
const slowPoolMs = 1e9;
/** The latency that the CPU pool offers; undefined: not timed yet. */
let poolMs: number | undefined = slowPoolMs;

const isDown = ({ msg }: LogLine): boolean => msg.startsWith('the GPU process is down');
const delays = (): (number | undefined)[] => lines.filter(isDown).map(({ delayMs }) => delayMs);
const upAgain = (): Promise<LogLine> => lineOf(({ msg }) => msg === 'the GPU process is up again');

/** By how much the clock was put forward. */
let aheadMs = 0;

interface Wishes {
  readonly environment?: Readonly<Record<string, string>>;
  readonly check?: GpuHostOptions['check'];
  readonly recheckEvery?: number;
}
const usual: Wishes = {};
/** The test gives the verdicts. */
const judged: Wishes = { check: (key, asked) => judge(key, asked), recheckEvery: 1 };
const agreed = { kind: 'agreed', inputs: 'drawn', precision: 'fp32', tolerance: 1e-3 } as const;
let judge: NonNullable<GpuHostOptions['check']>;
let opened: Wishes | undefined;

async function open(wishes: Wishes): Promise<GpuHost> {
  await close();
  const { environment = {}, check, recheckEvery = 0 } = wishes;
  store = new FakeStore();
  lines = [];
  lineWaiters = [];
  const logger = pino(
    { level: 'info' },
    {
      write: (line: string) => {
        lines.push(JSON.parse(line) as LogLine);
        for (const wake of lineWaiters.splice(0)) wake();
      },
    },
  );
  const machine = { devices: [{ memoryBytes: 64 * mebibyte }] };
  const live = new LiveScheduler({
    policy: policies.best,
    cpu: { cores: 1, memoryBytes: Infinity },
    cpuOffer: () => ({ latencyMs: poolMs, cores: 1 }),
    onGpuReport: (key, news) => host?.report(key, news),
  });
  host = new GpuHost({
    dataDir: join(folder, 'data'),
    registry: store,
    logger,
    settings: {
      hostBytes: 32 * mebibyte,
      gpuBytes: 16 * mebibyte,
      mode: 'pipeswitch',
      topology: undefined,
      profileIterations: 1,
      recheckEvery,
      coding: 'off',
      precision: 'exact',
      hybrid: 'off',
      hybridCores: 0,
      without: [],
    },
    slabBytes: mebibyte,
    live,
    statistics: new Statistics(),
    check,
    hybridLease: { cores: [], [Symbol.dispose]: () => undefined },
    plansFolder: join(folder, 'no-plans'),
    environment: { ...driver.environment, TURNTABLE_EMULATOR: JSON.stringify(machine), ...environment },
  });
  opened = wishes;
  return host;
}

/** The host of the test before, if it is such a one: to start a GPU process takes a second of a core. */
const opens = async (wishes: Wishes): Promise<GpuHost> =>
  host !== undefined && opened === wishes ? host : await open(wishes);

async function close(): Promise<void> {
  await host?.close();
  host = undefined;
}

/** Leaves the host as a new one: without functions, and without anything that it measured, compared or suffered. */
async function clear(): Promise<void> {
  for (const name of store.names()) await store.remove(name, undefined);
  await host?.settled();
  await rm(join(folder, 'data', 'plans'), { recursive: true, force: true });
  lines = [];
  // After a steady minute a death counts as the first.
  aheadMs += 61_000;
}

function publish(version: string, limitMs = waitLimitMs, path = modelPath): FunctionVersion {
  const made = functionVersion('product', {
    version,
    modelPath: path,
    metadata: metadata([spec('x', 'FP32', [1, width])], [spec('y', 'FP32', [1, width])]),
  });
  const timeouts = { handlerMs: limitMs, loadMs: limitMs, inferMs: limitMs };
  const pinned = { ...made, settings: { ...made.settings, sloMs: 60_000, pinned: true, timeouts } };
  store.put(pinned);
  return pinned;
}

async function runsOnCpu(placing: Promise<Placed>, runMs = 1): Promise<void> {
  const placed = await placing;
  if (placed.kind !== 'cpu') throw new Error(`it ran on ${placed.kind}`);
  placed.done({ runMs });
}

const isPinned = ({ key }: FunctionVersion): boolean | undefined => host!.live.sheetOf(key)?.pinned;
const bytesOf = ({ key }: FunctionVersion): number => host!.live.resident(key, 0).bytes;

describe.skipIf(emulatorMissing)('the GPUs of a host', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-host-'));
    driver = (await buildEmulatedDriver())!;
    modelPath = join(folder, 'model.onnx');
    otherPath = join(folder, 'other.onnx');
    for (const [seed, path] of [modelPath, otherPath].entries()) {
      const graph = new GraphBuilder('product');
      const x = graph.input('x', ElementType.FLOAT, [1, width]);
      const shape = [width, width];
      graph.output(graph.node('MatMul', [x, graph.weight('w', shape, wave(shape, 1 + seed, 0.2))]), ElementType.FLOAT, [1, width], 'y'); // prettier-ignore
      await writeModel(graph.build(), path);
    }
    const now = performance.now.bind(performance);
    vi.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs);
  });
  afterEach(async () => {
    poolMs = slowPoolMs;
    await clear();
  });
  afterAll(async () => {
    await close();
    vi.restoreAllMocks();
    await rm(folder, { recursive: true, force: true });
  });

  test('the GPUs of a host are retried less and less often after they fail, however long they were up', async () => {
    const libcuda = join(folder, 'libcuda-that-goes.so');
    await symlink(driver.libcuda, libcuda);
    const gpus = await open({ environment: { TURNTABLE_LIBCUDA: libcuda } });
    await gpus.settled();
    expect(gpus.status).toBe('up');
    await rm(libcuda);
    aheadMs += 3_600_000;
    process.kill(gpus.pid, 'SIGKILL');
    await lineOf((line) => isDown(line) && delays().length >= 3);
    expect(delays().slice(0, 3)).toEqual([0, 500, 2000]);
    await close();
  });

  test('the GPUs of a host are not given up if the first process is killed before it is up', async () => {
    const gpus = await open(usual);
    process.kill(gpus.pid, 'SIGKILL');
    await upAgain();
    expect(gpus.status).toBe('up');
    const version = publish('1');
    await gpus.settled();
    expect(gpus.whyNot(version.key)).toBeUndefined();
  });

  test('the GPUs of a host are shown in their last state while the process does not answer', async () => {
    const gpus = await opens(usual);
    const version = publish('1');
    await gpus.settled();
    expect(await gpus.load(version)).toBe(true);
    // On a busy machine the process may answer the first question too late, and has said nothing before.
    const before = await vi.waitUntil(() => gpus.freshState());
    expect(before?.residencies).toMatchObject([{ key: version.key }]);
    process.kill(gpus.pid, 'SIGSTOP');
    try {
      expect(await gpus.freshState()).toEqual(before);
    } finally {
      process.kill(gpus.pid, 'SIGCONT');
    }
  });

  test('the GPUs of a host are freed from a run that does not end, and leave its function to the CPU pool', async () => {
    const gpus = await opens(usual);
    const version = publish('1', 1000);
    await gpus.settled();
    expect(await gpus.load(version)).toBe(true);
    // Long before the process counts as not answering.
    process.kill(gpus.pid, 'SIGSTOP');
    const x = { name: 'x', datatype: 'FP32', shape: [1, width], data: new Uint8Array(4 * width) } as const;
    await runsOnCpu(gpus.live.submit(version, [x]));
    const { reason } = await lineOf(isDown);
    expect(reason).toBe("a run of function 'product@1' did not end within 2 s");
    await upAgain();
    await gpus.settled();
    expect(gpus.whyNot(version.key)?.words).toMatch(/^a run of function .* did not end within 2 s; retried in \d+ s$/);
    expect(gpus.record(version.key)?.state.kind).toBe('paused');
  });

  describe('a model that is larger than the GPUs of a host', () => {
    const layers = 20;
    const columns = 512;
    const shape = [columns, columns];
    const x = tensorOf(
      'x',
      'FP32',
      [1, columns],
      Float32Array.from({ length: columns }, (_, at) => (at % 7) - 3),
    );
    let large: string;
    beforeAll(async () => {
      large = join(folder, 'large.onnx');
      const graph = new GraphBuilder('large');
      let y = graph.input('x', ElementType.FLOAT, [1, columns]);
      // Near to the identity, so that twenty of them in a row do not cancel out.
      const weightsOf = (layer: number): Float32Array => {
        const weights = Float32Array.from(wave(shape, layer + 1, 0.001));
        for (let at = 0; at < columns; at++) weights[at * (columns + 1)]! += 1;
        return weights;
      };
      for (let layer = 0; layer < layers; layer++)
        y = graph.scope(`layer${layer}`, () => graph.node('MatMul', [y, graph.weight('w', shape, weightsOf(layer))])); // prettier-ignore
      graph.output(graph.node('Relu', [y]), ElementType.FLOAT, [1, columns], 'y');
      await writeModel(graph.build(), large);
    });
    const publishLarge = (name: string): FunctionVersion => {
      const described = metadata([spec('x', 'FP32', [1, columns])], [spec('y', 'FP32', [1, columns])]);
      const made = functionVersion(name, { version: '1', modelPath: large, metadata: described });
      const version = { ...made, settings: { ...made.settings, sloMs: 60_000 } };
      store.put(version);
      return version;
    };

    test('runs with the remaining layers read from host memory, and answers as ONNX Runtime does', async () => {
      const gpus = await opens(usual);
      const version = publishLarge('answers');
      await gpus.settled();
      expect(gpus.whyNot(version.key)).toBeUndefined();
      expect(gpus.keepsOff(version.key, [x])).toBeUndefined();
      const answers = [await gpus.live.submit(version, [x]), await gpus.live.submit(version, [x])];
      expect(answers.map((placed) => placed.kind === 'gpu' && placed.start)).toEqual(['cold', 'warm']);
      const [expected] = await runOnnxRuntime(large, [x]);
      for (const placed of answers) {
        const [y] = placed.kind === 'gpu' ? placed.result.outputs : [];
        const [found, wanted] = [y!, expected!].map(({ data }) => new Float32Array(Uint8Array.from(data).buffer)); // prettier-ignore
        const largest = Math.max(...wanted!.map(Math.abs));
        expect(largest).toBeGreaterThan(0);
        expect(Math.max(...wanted!.map((value, at) => Math.abs(value - found![at]!)))).toBeLessThan(1e-4 * largest);
      }
      // 13 of 20 layers fit.
      expect(bytesOf(version)).toBe(13 * 4 * columns * columns);
      expect((await gpus.state())?.memory[0]?.weightBytes).toBe(13 * 4 * columns * columns);
    });

    test('is left to a CPU pool that is faster, which its reason says', async () => {
      poolMs = 1e-6;
      const gpus = await opens(usual);
      const version = publishLarge('slower');
      await gpus.settled();
      // The scheduler asks for the pool's offer when a call comes.
      const first = await gpus.live.submit(version, [x]);
      if (first.kind === 'cpu') first.done();
      const keptOff = gpus.keepsOff(version.key, [x]);
      expect(keptOff).toMatchObject({
        reason: 'too-large',
        words: expect.stringMatching(
          /^it is larger than a GPU, where a run takes .* ms; the CPU pool takes 0\.0 ms$/,
        ) as string,
      });
      await runsOnCpu(gpus.live.submit(version, [x], { keptOff }));
    });

    test('is run by the CPU pool once before the GPUs take it', async () => {
      poolMs = undefined;
      const gpus = await opens(usual);
      const version = publishLarge('untimed');
      await gpus.settled();
      const keptOff = gpus.keepsOff(version.key, [x]);
      expect(keptOff?.words).toBe('it is larger than a GPU, and the CPU pool is timed first');
      await runsOnCpu(gpus.live.submit(version, [x], { keptOff }), slowPoolMs);
      expect(gpus.keepsOff(version.key, [x])).toBeUndefined();
    });
  });

  test('the GPUs of a host keep the pinned version that serves, and load it into a new process', async () => {
    const gpus = await opens(usual);
    const first = publish('1');
    await gpus.settled();
    await vi.waitUntil(() => bytesOf(first) > 0);
    // With the same weights both would be there.
    const second = publish('2', waitLimitMs, otherPath);
    await gpus.settled();
    await vi.waitUntil(() => bytesOf(second) > 0);
    expect([first, second].map(isPinned)).toEqual([false, true]);
    process.kill(gpus.pid, 'SIGKILL');
    await upAgain();
    await gpus.settled();
    await vi.waitUntil(() => bytesOf(second) > 0);
    expect(bytesOf(first)).toBe(0);
    await store.remove('product', '2');
    await gpus.settled();
    expect(isPinned(first)).toBe(true);
    await vi.waitUntil(() => bytesOf(first) > 0);
  });

  const killed: readonly GpuFunctionState['kind'][] = ['absent', 'registering', 'measuring', 'checking', 'planned', 'resident', 'paused', 'disagreed', 'lost']; // prettier-ignore

  test.each(killed)(
    'lose no call when the process is killed while a function is %s, and it is right afterwards',
    async (wanted) => {
      const agrees = wanted !== 'disagreed';
      judge = async () => {
        await new Promise(setImmediate);
        return agrees ? agreed : { kind: 'disagreed', output: 'y', why: 'it differs', precision: 'fp32' };
      };
      // Once the first process is up, no function is absent for long.
      const gpus = wanted === 'absent' ? await open(judged) : await opens(judged);
      const published = publish('1');
      const version = { ...published, settings: { ...published.settings, pinned: false } };
      store.put(version);
      const { key } = version;
      const x = { name: 'x', datatype: 'FP32', shape: [1, width], data: new Uint8Array(4 * width) } as const;
      const kinds: string[] = [];
      const call = async (): Promise<void> => {
        const placed = await gpus.live.submit(version, [x]);
        kinds.push(placed.kind);
        if (placed.kind === 'cpu') placed.done({ runMs: 1 });
      };
      const reached = async (kind: string): Promise<void> => {
        // Some states last for a few turns of the event loop, so it looks at every turn, but not while a process starts.
        if (kind !== 'absent' && gpus.status === 'starting') await lineOf(({ msg }) => msg === 'the GPU process is up');
        if (kind === 'lost') await upAgain();
        while (gpus.record(key)?.state.kind !== kind) await new Promise(setImmediate);
      };
      if (wanted === 'resident') {
        await reached('planned');
        await call();
      }
      if (wanted === 'paused') {
        await reached('planned');
        // So many that the pause outlasts the test.
        for (let run = 0; run < 12; run++)
          gpus.report(key, { kind: 'run failed', error: new GpuError('misuse', 'too large') });
      }
      if (wanted === 'lost') {
        await reached('planned');
        process.kill(gpus.pid, 'SIGKILL');
      }
      await reached(wanted);
      const calls = [call(), call()];
      process.kill(gpus.pid, 'SIGKILL');
      calls.push(call());
      await lineOf((line) => isDown(line));
      calls.push(call());
      await upAgain();
      await gpus.settled();
      await Promise.all(calls);
      expect(kinds.filter((kind) => kind !== 'cpu' && kind !== 'gpu')).toEqual([]);
      const { kind } = gpus.record(key)!.state;
      const isAside = wanted === 'paused' || wanted === 'disagreed';
      expect(isAside ? [wanted] : ['planned', 'resident']).toContain(kind);
      await call();
      expect(kinds.at(-1)).toBe(isAside ? 'cpu' : 'gpu');
    },
  );

  test('the GPUs of a host are withdrawn from a function whose answer a later check finds wrong, and not given back to it', async () => {
    const wrong = { kind: 'disagreed', output: 'y', why: 'element 0 is 1', precision: 'fp32' } as const;
    const checked: (readonly unknown[])[] = [];
    judge = (key, { outputs }) => {
      checked.push([key, outputs?.map(({ name }) => name)]);
      return Promise.resolve(outputs === undefined ? agreed : wrong);
    };
    const gpus = await opens(judged);
    const version = publish('1');
    const { key } = version;
    await gpus.settled();
    const x = { name: 'x', datatype: 'FP32', shape: [1, width], data: new Uint8Array(4 * width) } as const;
    const placed = await gpus.live.submit(version, [x]);
    if (placed.kind !== 'gpu') throw new Error(`it ran on ${placed.kind}`);
    gpus.ran(version, placed, [x]);
    await vi.waitUntil(() => gpus.record(key)?.state.kind === 'disagreed');
    expect(checked).toEqual([
      [key, undefined],
      [key, ['y']],
    ]);
    expect(gpus.whyNot(key)).toEqual({
      reason: 'disagreed',
      words: "its answer differs from that of ONNX Runtime: output 'y': element 0 is 1",
    });
    await gpus.settled();
    await runsOnCpu(gpus.live.submit(version, [x]));
    expect(bytesOf(version)).toBe(0);
  });
});
