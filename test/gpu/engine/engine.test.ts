import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Engine, type EngineOptions } from '../../../src/gpu/engine/index.ts';
import type { ColdStartMode } from '../../../src/plan/index.ts';
import { makeChain, planFor, wordsOf, type Chain, type PlanShape } from './chains.ts';
import { ModelCuda, type ModelCudaOptions } from './model-cuda.ts';

let folder: string;
let cuda: ModelCuda;
let engine: Engine;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-engine-'));
});

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

function open(devices: number, options: Partial<ModelCudaOptions & EngineOptions> = {}): void {
  cuda = new ModelCuda({ devices, deviceBytes: 2 ** 20, ...options });
  engine = new Engine(cuda, { hostBytes: 2 ** 20, slabBytes: 64 * 1024, gpuBytes: 256 * 1024, ...options });
}

/** Every test ends with this: no race, and nothing left. */
afterEach(async () => {
  await engine.close();
  expect(cuda.races).toEqual([]);
  expect(cuda.devices.map(({ declared }) => declared.size)).toEqual(cuda.devices.map(() => 0));
  expect(Object.values(cuda.counts()).every((count) => count === 0)).toBe(true);
});

const layerWords = [512, 0, 300, 1024, 64, 700, 0, 900, 128];
let chainCount = 0;

function addChain(options: { tied?: boolean; layerWords?: readonly number[] } = {}): Chain {
  const chain = makeChain({ folder, name: `chain${chainCount++}`, layerWords, ...options });
  engine.addFunction(chain.key, chain.program.layout);
  return chain;
}

async function run(chain: Chain, shape: PlanShape, extra: { trace?: boolean; signal?: AbortSignal } = {}) {
  const result = await engine.run(chain.key, chain.program, [chain.input], {
    gpu: shape.primary ?? 0,
    plan: planFor(chain, shape),
    ...extra,
  });
  expect(wordsOf(result.outputs)).toEqual(chain.expected);
  return result;
}

interface Case {
  readonly mode: ColdStartMode;
  readonly gpus: number;
  readonly secondaries: readonly number[];
}

const cases: Case[] = [1, 2, 4].flatMap((gpus) =>
  (['baseline', 'pipeswitch', 'dha', 'pt', 'pt+dha', 'interleave'] as const).map((mode) => {
    const isParallel = mode === 'pt' || mode === 'pt+dha' || mode === 'interleave';
    return { mode, gpus, secondaries: isParallel ? Array.from({ length: gpus - 1 }, (_, index) => index + 1) : [] };
  }),
);

describe.each(cases)('mode $mode on $gpus GPUs', ({ mode, gpus, secondaries }) => {
  it('answers right cold, warm, partly resident, evicted and reloaded', async () => {
    for (const seed of [1, 2, 3]) {
      open(gpus, { seed });
      const chain = addChain({ tied: seed === 2 });
      const shape = { mode, secondaries };
      const loaded = planFor(chain, shape).layers.filter(({ method }) => method === 'load').length;
      expect((await run(chain, shape)).start).toBe('cold');
      const first = await run(chain, shape);
      expect(first).toMatchObject({ start: 'warm', loadedBytes: 0 });
      expect((await run(chain, shape)).graph).toBe(true);
      expect((await run(chain, shape)).graph).toBe(true);
      for (const kept of [1, Math.floor(loaded / 2), loaded - 1]) {
        await engine.trim(chain.key, 0, kept);
        expect(engine.residency(chain.key, 0).layers).toHaveLength(kept);
        const partial = await run(chain, shape);
        expect(partial.start).toBe('partial');
        expect(engine.residency(chain.key, 0)).toMatchObject({ loading: false });
        expect(engine.residency(chain.key, 0).layers).toHaveLength(loaded);
      }
      await engine.evict(chain.key, 0);
      expect(engine.memory().map(({ weightBytes }) => weightBytes)).toEqual(cuda.devices.map(() => 0));
      expect((await run(chain, shape)).start).toBe('cold');
      expect(engine.memory().map(({ stagingBytes }) => stagingBytes)).toEqual(cuda.devices.map(() => 0));
      if (seed !== 3) {
        await engine.close();
        expect(cuda.races).toEqual([]);
      }
    }
  });

  it('tells where the time went, layer by layer', async () => {
    open(gpus);
    const chain = addChain();
    const shape = { mode, secondaries };
    const { timeline } = await run(chain, shape, { trace: true });
    const plan = planFor(chain, shape);
    expect(timeline?.layers.map(({ name }) => name)).toEqual(plan.layers.map(({ name }) => name));
    let busyMs = 0;
    for (const [index, layer] of timeline!.layers.entries()) {
      const planned = plan.layers[index]!;
      const isLoaded = planned.method === 'load';
      expect(layer.copy !== undefined).toBe(isLoaded);
      expect(layer.issue !== undefined).toBe(isLoaded);
      expect(layer.migration !== undefined).toBe(isLoaded && planned.link !== 0);
      expect(layer.execution.startMs).toBeGreaterThanOrEqual(busyMs);
      const arrivedMs = (layer.migration ?? layer.copy)?.endMs ?? 0;
      expect(layer.execution.startMs).toBeGreaterThanOrEqual(arrivedMs);
      expect(layer.stallMs).toBeGreaterThanOrEqual(0);
      busyMs = layer.execution.endMs;
    }
    expect(timeline!.latencyMs).toBe(busyMs);
    const warm = await run(chain, shape, { trace: true });
    expect(warm.timeline!.stallMs).toBe(0);
    expect(warm.timeline!.layers.every(({ copy }) => copy === undefined)).toBe(true);
  });
});
