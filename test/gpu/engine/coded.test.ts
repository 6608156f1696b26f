/** Coded layers in the engine: answers as without coding, bytes as the books say, and damage found before an answer. */
import { join } from 'node:path';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Engine } from '../../../src/gpu/engine/engine.ts';
import { alignUp } from '../../../src/gpu/program/arena.ts';
import { loadMachine } from '../../../src/hardware/index.ts';
import { measureLayers } from '../../../src/gpu/measure/layer-profile.ts';
import { planColdStart } from '../../../src/plan/index.ts';
import { gpuOffers } from '../../../src/schedule/index.ts';
import { withCoding } from '../../../src/gpu/program/coded.ts';
import { layerIds } from '../../../src/gpu/program/layer-ids.ts';
import { hostBytes } from '../../../src/gpu/program/types.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { inHost } from '../../support/in-host.ts';
import { makeChain, planFor, wordsOf, type Chain, type ChainOptions } from './chains.ts';
import { onEmulatedEngine } from './fixture.ts';

const modes = ['baseline', 'pipeswitch', 'dha', 'pt', 'pt+dha', 'interleave'] as const;
/** Layers without weights, too small to gain, of one unit and of several. */
const layerWords = [2500, 0, 300, 9000, 4000, 64, 0, 20_000, 3000];
const roomy = { hostBytes: 2 ** 23, slabBytes: 2 ** 20, gpuBytes: 2 ** 21 };

let folder: string;
let chains = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-coded-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface AddedChain extends Pick<ChainOptions, 'tied' | 'shares'> {
  /** Layers that a planner has chosen not to have coded. */
  readonly asTheyAre?: readonly number[];
}

/** A chain whose layers are coded where that gains, in the engine. */
async function addCoded(engine: Engine, options: AddedChain = {}): Promise<Chain> {
  const { asTheyAre = [], ...ofChain } = options;
  const made = makeChain({ folder, name: `coded${chains++}`, layerWords, floats: true, ...ofChain });
  const layout = await withCoding(made.program.layout, join(folder, 'cache'), { leastBytes: 0, asTheyAre });
  expect(layout.layers.map(({ coded }) => coded !== undefined)).toEqual(
    layerWords.map((words, layer) => words > 2000 && !asTheyAre.includes(layer)),
  );
  const ids = options.shares && (await layerIds(layout, join(folder, 'cache')));
  engine.addFunction(made.key, layout, ids);
  return { ...made, program: { ...made.program, layout } };
}

describe.skipIf(emulatorMissing).each([1, 2])('on %i emulated GPUs', (gpus) => {
  const use = sharedEmulatedCuda({ devices: gpus });

  test.each(modes)(
    'mode %s gives right answers cold, warm, partly resident, evicted and loaded ahead',
    async (mode) => {
      const isParallel = mode === 'pt' || mode === 'pt+dha' || mode === 'interleave';
      const secondaries = isParallel && gpus > 1 ? [1] : [];
      // No plan executes a layer from host memory that is coded there.
      const shape = { mode, secondaries, fromHost: (layer: number) => layer === 2 };
      await onEmulatedEngine(use, roomy, async ({ engine, run }) => {
        const chain = await addCoded(engine, { tied: mode === 'dha' });
        const plan = planFor(chain, shape);
        const { layers } = chain.program.layout;
        const loaded = layers.filter((_, layer) => plan.layers[layer]!.method === 'load');
        const before = engine.links().reduce((sum, { fromHost }) => sum + fromHost, 0);
        const passedBefore = engine.links().map(({ toPeers }) => toPeers);
        expect((await run(chain, shape)).start).toBe('cold');
        const moved = engine.links().reduce((sum, { fromHost }) => sum + fromHost, 0) - before;
        const expected = loaded.reduce((sum, layer) => sum + hostBytes(layer), 0);
        // What another GPU's link brings stays coded on NVLink, and is decoded where it is executed.
        const lent = loaded.filter(({ index }) => plan.layers[index]!.link === 1);
        expect(lent.length > 0).toBe(secondaries.length > 0);
        expect(engine.links().map(({ gpu, toPeers }) => toPeers - passedBefore[gpu]!)).toEqual(
          engine.devices.map(({ index }) => (index === 1 ? lent.reduce((sum, layer) => sum + hostBytes(layer), 0) : 0)),
        );
        // Beside the weights, the inputs, and what executes from host memory.
        expect(moved - expected).toBeGreaterThanOrEqual(0);
        expect(moved - expected).toBeLessThan(4096);
        expect(engine.hostTier(chain.key).bytes).toBe(layers.reduce((sum, layer) => sum + hostBytes(layer), 0));
        expect(await run(chain, shape)).toMatchObject({ start: 'warm', loadedBytes: 0 });
        expect((await run(chain, shape)).graph).toBe(true);
        for (const kept of [1, 3]) {
          await engine.trim(chain.key, 0, kept);
          expect((await run(chain, shape)).start).toBe('partial');
        }
        await engine.evict(chain.key, 0);
        const result = await engine.load(chain.key, { gpu: 0, plan });
        expect(result.bytes).toBe(loaded.reduce((sum, { bytes }) => sum + bytes, 0));
        expect((await run(chain, shape)).start).toBe('warm');
        expect(engine.memory().map(({ stagingBytes }) => stagingBytes)).toEqual(engine.devices.map(() => 0));
        expect(engine.layersRepaired).toBe(0);
      });
    },
  );

  test.each(['baseline', 'pipeswitch'] as const)(
    "mode %s: the scheduler's offer of a measured profile has the bytes that the link carries, whichever layers come coded",
    async (mode) => {
      const machine = loadMachine('p3.8xlarge');
      await onEmulatedEngine(use, roomy, async ({ engine }) => {
        for (const asTheyAre of [[], [4], [0, 3, 7], [...layerWords.keys()]]) {
          const { key, program, input, expected } = await addCoded(engine, { asTheyAre });
          await inHost(engine, key);
          const profile = await measureLayers(engine, key, program, { gpu: 0, iterations: 2 });
          const { layers } = program.layout;
          expect(profile.layers.map(({ coded }) => coded?.bytes)).toEqual(layers.map(({ coded }) => coded?.codedBytes));
          const plan = planColdStart(profile, machine, mode);
          const [offer] = gpuOffers(profile, machine, mode);
          const { bytes } = offer!.ways[0].transfers[0];
          for (const kept of [0, 2]) {
            await engine.trim(key, 0, kept);
            const before = engine.links()[0]!.fromHost;
            const { outputs } = await engine.run(key, program, [input], { gpu: 0, plan });
            expect(wordsOf(outputs)).toEqual(expected);
            expect(engine.links()[0]!.fromHost - before - input.data.byteLength).toBe(bytes[kept]);
          }
          await engine.removeFunction(key);
        }
      });
    },
  );

  test('a traced run tells when each coded layer was decoded, behind its copy and before its execution', async () => {
    await onEmulatedEngine(use, roomy, async ({ engine, run }) => {
      const chain = await addCoded(engine);
      const { timeline } = await run(chain, {}, { trace: true });
      for (const [index, { copy, decode, execution }] of timeline!.layers.entries()) {
        expect(decode !== undefined).toBe(chain.program.layout.layers[index]!.coded !== undefined);
        expect(decode?.endMs ?? 0).toBeGreaterThanOrEqual(decode === undefined ? 0 : copy!.startMs);
        expect(execution.startMs).toBeGreaterThanOrEqual(decode?.startMs ?? 0);
      }
    });
  });

  test('wrong bytes are found before an answer leaves: the layer is loaded once as it is, and counted', async () => {
    await onEmulatedEngine(use, roomy, async ({ engine, run }) => {
      const chain = await addCoded(engine);
      await inHost(engine, chain.key);
      const { target } = engine.internals(chain.key, 0);
      const damaged = [3, 7];
      // As if the link had changed bits: in host memory, so that each copy does.
      const flip = (): void => {
        for (const layer of damaged) target.place(layer)!.view(2000, 1)[0]! ^= 16;
      };
      flip();
      expect((await run(chain)).start).toBe('warm');
      expect(engine.layersRepaired).toBe(2);
      expect(await run(chain)).toMatchObject({ start: 'warm', loadedBytes: 0 });
      // A load ahead finds and mends it too.
      await engine.evict(chain.key, 0);
      await engine.load(chain.key, { gpu: 0, plan: planFor(chain, { mode: 'pipeswitch' }) });
      expect(engine.layersRepaired).toBe(4);
      expect((await run(chain)).start).toBe('warm');
      flip();
      await engine.evict(chain.key, 0);
      expect((await run(chain)).start).toBe('cold');
      expect(engine.layersRepaired).toBe(4);
    });
  });

  test('the books of bytes are equal at each step of random loads, runs, trims, reads and drops', async () => {
    const step = fc.record({
      chain: fc.nat(2),
      what: fc.constantFrom('load', 'run', 'trim', 'drop', 'evict'),
      layers: fc.nat(layerWords.length),
    });
    await onEmulatedEngine(use, roomy, async ({ engine, add, run }) => {
      const chains = [await addCoded(engine), await addCoded(engine, { tied: true }), add({ layerWords })];
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
          for (const { chain: index, what, layers: kept } of steps) {
            const chain = chains[index]!;
            const { layers } = chain.program.layout;
            const plan = planFor(chain, { mode: 'pipeswitch' });
            const before = new Set(engine.residency(chain.key, 0).layers);
            const movedBefore = engine.links()[0]!.fromHost;
            if (what === 'load') {
              await inHost(engine, chain.key);
              await engine.load(chain.key, { gpu: 0, plan });
            } else if (what === 'run') await run(chain);
            else if (what === 'drop') await engine.drop(chain.key);
            else await engine.trim(chain.key, 0, what === 'evict' ? 0 : kept);
            const moved = engine.links()[0]!.fromHost - movedBefore;
            const there = new Set(engine.residency(chain.key, 0).layers);
            const arrived = layers.filter((layer) => there.has(layer.index) && !before.has(layer.index));
            const inputBytes = what === 'run' ? chain.input.data.byteLength : 0;
            expect(moved).toBe(arrived.reduce((sum, layer) => sum + hostBytes(layer), inputBytes));
            expect(engine.residency(chain.key, 0).bytes).toBe(
              layers.reduce((sum, { bytes, index: layer }) => sum + (there.has(layer) ? bytes : 0), 0),
            );
            const residentBytes = chains.reduce((sum, { key }) => sum + engine.residency(key, 0).bytes, 0);
            expect(engine.memory()[0]).toMatchObject({ weightBytes: residentBytes, stagingBytes: 0 });
            const hostWhole = layers.reduce((sum, layer) => sum + hostBytes(layer), 0);
            expect([0, hostWhole]).toContain(engine.hostTier(chain.key).bytes);
          }
        }),
        { numRuns: 12 },
      );
      expect(engine.layersRepaired).toBe(0);
    });
  });

  test('runs that share damaged layers with a load under way all get right answers', async () => {
    await onEmulatedEngine(use, roomy, async ({ engine }) => {
      const chain = await addCoded(engine);
      await inHost(engine, chain.key);
      const { target } = engine.internals(chain.key, 0);
      target.place(4)!.view(3000, 1)[0]! ^= 1;
      const plan = planFor(chain, { mode: 'pipeswitch' });
      const load = engine.load(chain.key, { gpu: 0, plan });
      const runs = Array.from({ length: 4 }, () =>
        engine.run(chain.key, chain.program, [chain.input], { gpu: 0, plan }),
      );
      for (const { outputs } of await Promise.all(runs)) expect(wordsOf(outputs)).toEqual(chain.expected);
      await load;
      expect(engine.layersRepaired).toBeGreaterThanOrEqual(1);
    });
  });

  test('versions share coded layers: they are copied once, and whoever runs a damaged one gets a right answer', async () => {
    await onEmulatedEngine(use, roomy, async ({ engine, run }) => {
      const shares = { base: 'versions', layers: layerWords.length - 1 };
      const one = await addCoded(engine, { shares });
      const two = await addCoded(engine, { shares });
      const three = await addCoded(engine, { shares });
      for (const { key } of [one, two, three]) await inHost(engine, key);
      const { target } = engine.internals(one.key, 0);
      target.place(4)!.view(3000, 1)[0]! ^= 1;
      const plan = planFor(one, { mode: 'pipeswitch' });
      await Promise.all([engine.load(one.key, { gpu: 0, plan }), run(two)]);
      expect(engine.layersRepaired).toBeGreaterThanOrEqual(1);
      expect(await run(one)).toMatchObject({ start: 'warm', loadedBytes: 0 });
      const head = three.program.layout.layers.at(-1)!;
      expect(await run(three)).toMatchObject({ start: 'partial', loadedBytes: head.bytes });
      const { bytes } = one.program.layout;
      expect(engine.memory()[0]!.weightBytes).toBe(bytes + 2 * head.bytes);
      const held = [...one.program.layout.layers, ...[two, three].map(({ program }) => program.layout.layers.at(-1)!)];
      expect(engine.hostState().usedBytes).toBe(held.reduce((sum, layer) => sum + alignUp(hostBytes(layer)), 0));
      // The load of one brings a damaged layer, which another runs.
      await engine.release(one.key, 0, target.all);
      target.place(7)!.view(3000, 1)[0]! ^= 1;
      const before = engine.layersRepaired;
      await Promise.all([engine.load(one.key, { gpu: 0, plan }), run(three), run(two), run(three)]);
      expect(engine.layersRepaired).toBeGreaterThan(before);
    });
  });
});
