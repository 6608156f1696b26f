/** The GPUs of a host whose GPU process dies or hangs, and functions that are pinned there, on the emulated driver. */
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { GpuHost } from '../../src/host/gpu/gpu-host.ts';
import type { FunctionVersion } from '../../src/host/types.ts';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { buildEmulatedDriver, type EmulatedDriver } from '../emulated-driver/build.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { wave } from '../support/unrolling.ts';
import { FakeStore, functionVersion, metadata, spec } from './fakes.ts';

const width = 64;
const mebibyte = 2 ** 20;

interface LogLine {
  readonly msg: string;
  readonly reason?: string;
  readonly delayMs?: number;
}

let folder: string;
let modelPath: string;
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

const isDown = ({ msg }: LogLine): boolean => msg.startsWith('the GPU process is down');
const delays = (): (number | undefined)[] => lines.filter(isDown).map(({ delayMs }) => delayMs);
const upAgain = (): Promise<LogLine> => lineOf(({ msg }) => msg === 'the GPU process is up again');

function open(environment: Readonly<Record<string, string>> = {}): GpuHost {
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
  host = new GpuHost({
    dataDir: join(folder, 'data'),
    registry: store,
    logger,
    hostBytes: 16 * mebibyte,
    gpuBytes: 4 * mebibyte,
    slabBytes: mebibyte,
    mode: 'pipeswitch',
    policy: 'best',
    cpuCores: 1,
    hybrid: 'off',
    hybridCores: { count: 0, lease: { cores: [], [Symbol.dispose]: () => undefined } },
    cpuOffer: () => ({ latencyMs: 1000, cores: 1 }),
    iterations: 1,
    plansFolder: join(folder, 'no-plans'),
    environment: { ...driver.environment, TURNTABLE_EMULATOR: JSON.stringify(machine), ...environment },
  });
  return host;
}

function publish(version: string): FunctionVersion {
  const made = functionVersion('product', {
    version,
    modelPath,
    metadata: metadata([spec('x', 'FP32', [1, width])], [spec('y', 'FP32', [1, width])]),
  });
  const pinned = { ...made, settings: { ...made.settings, sloMs: 60_000, pinned: true } };
  store.put(pinned);
  return pinned;
}

const isPinned = ({ key }: FunctionVersion): boolean | undefined => host!.shell!.sheetOf(key)?.pinned;
const bytesOf = ({ key }: FunctionVersion): number => host!.shell!.resident(key, 0).bytes;

describe.skipIf(emulatorMissing)('the GPUs of a host', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-host-'));
    driver = (await buildEmulatedDriver())!;
    modelPath = join(folder, 'model.onnx');
    const graph = new GraphBuilder('product');
    const x = graph.input('x', ElementType.FLOAT, [1, width]);
    const shape = [width, width];
    graph.output(graph.node('MatMul', [x, graph.weight('w', shape, wave(shape, 1, 0.2))]), ElementType.FLOAT, [1, width], 'y'); // prettier-ignore
    await writeModel(graph.build(), modelPath);
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await host?.close();
    host = undefined;
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test('are not given up when the first process is killed before it is up', async () => {
    const gpus = open();
    process.kill(gpus.pid, 'SIGKILL');
    await upAgain();
    expect(gpus.status).toBe('up');
    const version = publish('1');
    await gpus.settled();
    expect(gpus.whyNot(version.key)).toBeUndefined();
  });

  test('are tried less and less often once they have gone, however long they were up', async () => {
    const libcuda = join(folder, 'libcuda-that-goes.so');
    await symlink(driver.libcuda, libcuda);
    const gpus = open({ TURNTABLE_LIBCUDA: libcuda });
    await gpus.settled();
    expect(gpus.status).toBe('up');
    await rm(libcuda);
    const now = performance.now.bind(performance);
    vi.spyOn(performance, 'now').mockImplementation(() => now() + 3_600_000);
    process.kill(gpus.pid, 'SIGKILL');
    await lineOf((line) => isDown(line) && delays().length >= 3);
    expect(delays().slice(0, 3)).toEqual([0, 500, 2000]);
  });

  test('are shown as they were last while the process does not answer', async () => {
    const gpus = open();
    const version = publish('1');
    await gpus.settled();
    expect(await gpus.load(version)).toBe(true);
    const before = await gpus.freshState();
    expect(before?.residencies).toMatchObject([{ key: version.key }]);
    process.kill(gpus.pid, 'SIGSTOP');
    try {
      expect(await gpus.freshState()).toEqual(before);
    } finally {
      process.kill(gpus.pid, 'SIGCONT');
    }
  });

  test('are rid of a run that does not end, and leave its function to the CPU pool', async () => {
    const gpus = open();
    const version = publish('1');
    await gpus.settled();
    expect(await gpus.load(version)).toBe(true);
    // Long before it is taken for a process that does not answer.
    process.kill(gpus.pid, 'SIGSTOP');
    const x = { name: 'x', datatype: 'FP32', shape: [1, width], data: new Uint8Array(4 * width) } as const;
    expect(await gpus.invoke(version, [x])).toMatchObject({ kind: 'offload' });
    const { reason } = await lineOf(isDown);
    expect(reason).toBe("a run of function 'product@1' did not end within 2 s");
    await upAgain();
    await gpus.settled();
    expect(gpus.whyNot(version.key)).toMatch(/^a run of function .* did not end within 2 s; tried again in \d+ s$/);
    expect(gpus.failing.has(version.key)).toBe(true);
  });

  test('keep the pinned version that serves, and bring it back to a new process', async () => {
    const gpus = open();
    const first = publish('1');
    await gpus.settled();
    await vi.waitUntil(() => bytesOf(first) > 0, { timeout: 30_000 });
    const second = publish('2');
    await gpus.settled();
    await vi.waitUntil(() => bytesOf(second) > 0, { timeout: 30_000 });
    expect([first, second].map(isPinned)).toEqual([false, true]);
    process.kill(gpus.pid, 'SIGKILL');
    await upAgain();
    await gpus.settled();
    await vi.waitUntil(() => bytesOf(second) > 0, { timeout: 30_000 });
    expect(bytesOf(first)).toBe(0);
    await store.remove('product', '2');
    await gpus.settled();
    expect(isPinned(first)).toBe(true);
    await vi.waitUntil(() => bytesOf(first) > 0, { timeout: 30_000 });
  });
});
