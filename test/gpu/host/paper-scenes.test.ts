/**
 * The scene of DeepPlan's serving figures, small: more instances of one model than four GPUs hold, called one after the
 * other, by each policy. Times mean nothing on the emulated driver; where each call runs, and what is there and what it
 * loads, follows from the order of calls alone, and is what the simulator says.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openSnapshot, readScheduler } from '../../../bench/simulated/host-snapshot.ts';
import { simulateHost } from '../../../bench/simulated/simulation.ts';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { buildArchitecture, writeModel } from '../../../src/onnx/index.ts';
import { Xoshiro, type LiveAnswer } from '../../../src/replay/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';

const instances = 24;
const gpuCount = 4;
/** Of each GPU, in instances: 16 of 24 fit on the four. */
const roomFor = 4.5;
const calls = 120;
const names = Array.from({ length: instances }, (_, index) => `instance-${index}`);
/** Beyond any run: no call finds another under way, and no link was busy of late. */
const gapMs = 100_000;

let folder: string;
let bytesOfOne = 0;
let body: string;

/** What one call did. A start from disk is a cold one: the simulator's host memory has every instance. */
interface Step {
  readonly name: string;
  readonly gpu: number;
  readonly start: string;
}

const stepsOf = (seed: number): string[] => {
  const random = new Xoshiro(seed);
  return Array.from({ length: calls }, () => names[Math.floor(instances * (random.below(1000) / 1000) ** 2)]!);
};

async function started(mode: string, policy: string, eviction: string): Promise<RunningHost> {
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      'cpu.profiling': 'off',
      'gpu.mode': mode,
      'gpu.policy': policy,
      // By what the order of calls decides alone: which link was busy of late, and what is missed least, depends on times.
      'gpu.routing': 'modulo',
      'gpu.eviction': eviction,
      'gpu.memory': `${Math.ceil((roomFor * bytesOfOne) / 0.85 / 1024)}KiB`,
      'gpu.hostMemory': `${Math.ceil((2 * instances * bytesOfOne) / 1024)}KiB`,
      'gpu.profileIterations': '1',
      'gpu.hybrid': 'off',
      'gpu.recheckEvery': '0',
    },
  });
  const host = await startHost(config, {
    logger: createLogger({ level: process.env['TURNTABLE_TEST_LOG'] === '1' ? 'info' : 'silent', format: 'json' }),
  });
  await host.gpus!.settled();
  return host;
}

describe.skipIf(emulatorMissing)('more instances than four GPUs hold', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-paper-scenes-'));
    await emulateGpus(Array.from({ length: gpuCount }, () => ({ memoryBytes: 64 * 2 ** 20 })));
    const settings = { layers: 2, input: 32, hidden: 64, sequence: 4, batch: 1 };
    body = JSON.stringify({
      inputs: [{ name: 'input', datatype: 'FP32', shape: [1, 4, 32], data: Array.from({ length: 128 }, () => 0.5) }],
    });
    for (const [seed, name] of names.entries()) {
      const built = buildArchitecture('lstm', settings, seed);
      bytesOfOne = built.weightBytes;
      const place = join(folder, 'functions', name);
      await mkdir(place, { recursive: true });
      await writeModel(built.model, join(place, 'model.onnx'));
      await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '600s' }));
    }
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  test.each([
    ['pipeswitch', 'lru', 'policy'],
    ['dha', 'artifact', 'policy'],
    ['interleave', 'best', 'lru-suffix'],
  ])(
    '%s, %s, eviction by %s: each call runs where the simulator runs it, and starts as it does there',
    async (mode, policy, eviction) => {
      const host = await started(mode, policy, eviction);
      try {
        const unplanned = names.filter((name) => host.gpus!.record(`${name}@1`)?.state.kind !== 'planned');
        expect(unplanned.map((name) => host.gpus!.whyNot(`${name}@1`)?.words)).toEqual([]);
        const address = { url: host.url, apiKey: undefined };
        const { scheduler, functions } = await openSnapshot(address, await readScheduler(address), names);
        const live: Step[] = [];
        for (const name of stepsOf(7)) {
          const reply = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body });
          expect([name, reply.status, await reply.text()]).toEqual([name, 200, expect.anything()]);
          const placement = reply.headers.get('x-turntable-placement')!;
          const found = /^gpu(\d) (warm|partial|cold|from disk)/.exec(placement);
          live.push({ name, gpu: Number(found?.[1]), start: found?.[2]?.replace('from disk', 'cold') ?? placement });
        }
        const simulated: Step[] = [];
        const answers = stepsOf(7).map((name, sequence): LiveAnswer => {
          const arrivalMs = sequence * gapMs;
          const functionIndex = names.indexOf(name);
          const outcome = {
            sequence,
            functionIndex,
            arrivalMs,
            endMs: arrivalMs,
            queueMs: 0,
            sloMs: 600_000,
            placement: { kind: 'cpu' },
          } as const;
          return { outcome, sentMs: arrivalMs, loadMs: 0, inferenceMs: 0, hostMs: 0 };
        });
        simulateHost(
          answers,
          { scheduler, functions, nameOf: (index) => names[index]! },
          {
            outcome: ({ functionIndex, placement }) => {
              if (placement.kind !== 'gpu') throw new Error(`${names[functionIndex]} ran at ${placement.kind}`);
              simulated.push({ name: names[functionIndex]!, gpu: placement.gpu, start: placement.residency });
            },
            eviction: () => undefined,
            busy: () => undefined,
          },
        );
        expect(simulated).toEqual(live);
        const kinds = eviction === 'policy' ? ['warm', 'cold'] : ['warm', 'partial'];
        for (const kind of kinds) expect(live.filter(({ start }) => start === kind).length).toBeGreaterThan(10);
      } finally {
        await host.stop();
      }
    },
  );
});
