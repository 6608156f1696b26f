/** Functions with the same first layers have them once, in host memory and on each GPU, whatever becomes of the others. */
import { mkdtempSync, rmSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { WeightReader } from '../../../src/gpu/program/weight-reader.ts';
import { withCoding } from '../../../src/gpu/program/coded.ts';
import { layerIds } from '../../../src/gpu/program/layer-ids.ts';
import { GpuError } from '../../../src/gpu/types.ts';
import { inHost } from '../../support/in-host.ts';
import { makeChain, planFor, wordsOf, type Chain, type ChainOptions } from './chains.ts';
import { onEngine, type BenchOptions, type ModelBench } from './fixture.ts';
import { draws } from '../../support/draws.ts';

const layerWords = [512, 300, 1024, 64, 700];

interface Sharing extends ModelBench {
  /** Makes a chain and adds it with the names of its layers, of which those of at least so many bytes are coded. */
  readonly share: (options: Partial<ChainOptions>, codedBytesLeast?: number) => Promise<Chain>;
  readonly idsOf: (key: string) => readonly string[];
}

async function onSharingEngine(options: BenchOptions, use: (bench: Sharing) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'turntable-shared-'));
  const ids = new Map<string, readonly string[]>();
  let made = 0;
  try {
    await onEngine(options, (bench) =>
      use({
        ...bench,
        idsOf: (key) => ids.get(key)!,
        share: async (chain, codedBytesLeast = Infinity) => {
          const whole = makeChain({ folder, name: `shared${made++}`, layerWords, ...chain });
          const layout =
            codedBytesLeast === Infinity
              ? whole.program.layout
              : await withCoding(whole.program.layout, join(folder, 'cache'), { leastBytes: codedBytesLeast });
          const shared = { ...whole, program: { ...whole.program, layout } };
          ids.set(shared.key, await layerIds(layout, join(folder, 'cache')));
          bench.engine.addFunction(shared.key, layout, ids.get(shared.key));
          return shared;
        },
      }),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const pipeswitch = { mode: 'pipeswitch' } as const;

test('ten twins come to the GPU with one load, and with one read from disk', async () => {
  await onSharingEngine({}, async ({ engine, share, run }) => {
    const twins: Chain[] = [];
    for (let count = 0; count < 10; count++) twins.push(await share({ shares: { base: 'twins', layers: 5 } }));
    const [first] = twins;
    const { bytes } = first!.program.layout;
    for (const twin of twins) {
      const { start, loadedBytes } = await run(twin);
      expect([start, loadedBytes]).toEqual(twin === first ? ['cold', bytes] : ['warm', 0]);
    }
    expect(engine.memory()[0]!.weightBytes).toBe(bytes);
    expect(engine.hostState().usedBytes).toBe(bytes);
    expect(engine.links()[0]!.fromHost).toBeLessThan(bytes + 10 * 1024);
    for (const twin of twins) expect(engine.residency(twin.key, 0).sharedWith).toHaveLength(9);
    // Each keeps them until it gives them up; then the last one takes them with it.
    for (const twin of twins.slice(1)) expect(await engine.evict(twin.key, 0)).toBe(0);
    expect(await engine.evict(first!.key, 0)).toBe(bytes);
  });
});

test('a second version loads what differs alone', async () => {
  await onSharingEngine({}, async ({ engine, share, run }) => {
    const [one, two] = [
      await share({ shares: { base: 'b', layers: 4 } }),
      await share({ shares: { base: 'b', layers: 4 } }),
    ];
    await run(one);
    const { start, loadedBytes } = await run(two);
    const head = two.program.layout.layers[4]!.bytes;
    expect([start, loadedBytes]).toEqual(['partial', head]);
    const { bytes } = one.program.layout;
    expect(engine.memory()[0]!.weightBytes).toBe(bytes + head);
    expect(engine.hostState().usedBytes).toBe(bytes + head);
    await engine.removeFunction(one.key);
    expect(engine.memory()[0]!.weightBytes).toBe(bytes);
    expect((await run(two)).start).toBe('warm');
    expect(await engine.release(two.key, 0, [1, 2, 3])).toBeGreaterThan(0);
    expect((await run(two)).start).toBe('partial');
  });
});

test('a hundred versions with heads of their own take the bytes of one, and of a hundred heads', async () => {
  await onSharingEngine(
    { hostBytes: 2 ** 21, gpuBytes: 2 ** 20, deviceBytes: 2 ** 21 },
    async ({ engine, share, run }) => {
      const words = [2000, 3000, 2500, 100];
      const versions: Chain[] = [];
      for (let count = 0; count < 100; count++)
        versions.push(await share({ layerWords: words, shares: { base: 'resnet', layers: 3 } }));
      for (const version of versions) await run(version);
      const { layers, bytes } = versions[0]!.program.layout;
      const unique = bytes + 99 * layers[3]!.bytes;
      expect(engine.memory()[0]!.weightBytes).toBeLessThanOrEqual(1.05 * unique);
      expect(engine.hostState().usedBytes).toBeLessThanOrEqual(1.05 * unique);
    },
  );
});

test.each(['run', 'load'] as const)(
  'a %s that waits for the disk keeps nothing waiting that shares other layers with its function',
  async (kind) => {
    await onSharingEngine({}, async ({ engine, share, run }) => {
      const shares = { base: 'slow', layers: 4 };
      const [one, two] = [await share({ shares }), await share({ shares })];
      await run(two);
      await engine.trim(two.key, 0, 4);
      const reading = new AbortController();
      const isRead = new Promise((resolve) => reading.signal.addEventListener('abort', resolve));
      const read = Reflect.get(WeightReader.prototype, 'read');
      using _reads = vi.spyOn(WeightReader.prototype, 'read').mockImplementation(async function (
        this: WeightReader,
        ...asked
      ) {
        await isRead;
        await read.apply(this, asked);
      });
      const staging = engine.stage(one.key);
      const [plan, plans] = [planFor(one, pipeswitch), planFor(two, pipeswitch)];
      let isOver = false;
      const options = { gpu: 0, plan };
      const slow = (
        kind === 'run'
          ? engine.run(one.key, one.program, [one.input], options)
          : engine.load(one.key, options).then(() => run(one))
      ).finally(() => (isOver = true));
      expect(await engine.load(two.key, { gpu: 0, plan: plans })).toMatchObject({ fromDisk: false });
      expect(wordsOf((await run(two)).outputs)).toEqual(two.expected);
      expect(await engine.trim(two.key, 0, 4)).toBeGreaterThan(0);
      expect(isOver).toBe(false);
      reading.abort();
      expect(wordsOf((await slow).outputs)).toEqual(one.expected);
      expect(await staging).toMatchObject({ kind: 'staged' });
    });
  },
);

test('one load serves those that ask at once, also when one of them is removed in the middle of it', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 2 ** 30 }), fc.boolean(), async (seed, removes) => {
      await onSharingEngine({ seed }, async ({ engine, share, idsOf }) => {
        const shares = { base: 'asked', layers: 4 };
        const [one, two] = [await share({ shares }), await share({ shares })];
        await inHost(engine, one.key);
        await inHost(engine, two.key);
        const plans = [planFor(one, pipeswitch), planFor(two, pipeswitch)] as const;
        const loads = [
          engine.load(one.key, { gpu: 0, plan: plans[0] }),
          engine.load(two.key, { gpu: 0, plan: plans[1] }),
          engine.run(two.key, two.program, [two.input], { gpu: 0, plan: plans[1] }),
        ] as const;
        const settled = Promise.allSettled(loads);
        if (removes) await engine.removeFunction(one.key);
        const [, second, ran] = await settled;
        expect(second.status).toBe('fulfilled');
        expect(ran.status === 'fulfilled' && wordsOf(ran.value.outputs)).toEqual(two.expected);
        const kept = new Map(two.program.layout.layers.map(({ index, bytes }) => [idsOf(two.key)[index]!, bytes]));
        if (!removes) for (const { index, bytes } of one.program.layout.layers) kept.set(idsOf(one.key)[index]!, bytes);
        expect(engine.memory()[0]!.weightBytes).toBe([...kept.values()].reduce((sum, bytes) => sum + bytes, 0));
      });
    }),
    { numRuns: draws(20) },
  );
});

test('a read that two ask for ends for the second when the first is removed in the middle of it', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 2 ** 30 }), async (seed) => {
      await onSharingEngine({ seed, slabBytes: 8192 }, async ({ engine, share, run }) => {
        const shares = { base: 'read', layers: 4 };
        const [one, two] = [await share({ shares }), await share({ shares })];
        const reads = [engine.stage(one.key), engine.stage(two.key)] as const;
        const settled = Promise.allSettled(reads);
        for (let turn = 0; turn < seed % 40; turn++) await new Promise((resolve) => setImmediate(resolve));
        await engine.removeFunction(one.key);
        const [, second] = await settled;
        expect(second).toMatchObject({ status: 'fulfilled', value: { kind: 'staged' } });
        const { bytes } = two.program.layout;
        expect(engine.hostTier(two.key)).toEqual({ bytes, filledBytes: bytes });
        expect(engine.hostState().usedBytes).toBe(bytes);
        expect((await run(two)).start).toBe('cold');
      });
    }),
    { numRuns: draws(15) },
  );
});

test('of a read that ends in the middle nothing is left, but for what others have', async () => {
  await onSharingEngine({}, async ({ engine, share }) => {
    const one = await share({ shares: { base: 'cut', layers: 2 } });
    const two = await share({ shares: { base: 'cut', layers: 2 } });
    const first = one.program.layout.layers[0]!.bytes;
    await engine.stage(two.key, [0]);
    const { path, byteOffset } = one.program.layout.weights[3]!.source;
    truncateSync(path, byteOffset);
    await expect(engine.stage(one.key)).rejects.toMatchObject({ code: 'weights-unreadable' });
    expect(engine.hostState().usedBytes).toBe(first);
    await engine.drop(two.key);
    expect(engine.hostState().usedBytes).toBe(0);
  });
});

test('a layer that is coded is another one than the same layer as it is', async () => {
  await onSharingEngine({ hostBytes: 2 ** 20, gpuBytes: 2 ** 20, deviceBytes: 2 ** 21 }, async ({ share, idsOf }) => {
    const chain = { layerWords: [3000, 4000, 300], floats: true, shares: { base: 'coded', layers: 3 } };
    const [plain, twin] = [await share(chain), await share(chain)];
    const [coded, other] = [await share(chain, 1024), await share(chain, 1024)];
    // The second layer of these alone is coded, so they have the first in common with the plain ones.
    const [mixed] = [await share(chain, 14_000)];
    expect(coded.program.layout.layers.map((layer) => layer.coded !== undefined)).toEqual([true, true, false]);
    expect(idsOf(twin.key)).toEqual(idsOf(plain.key));
    expect(idsOf(other.key)).toEqual(idsOf(coded.key));
    expect(new Set([plain, coded, mixed].map(({ key }) => idsOf(key)[0])).size).toBe(2);
    expect(new Set([plain, coded, mixed].map(({ key }) => idsOf(key)[1])).size).toBe(3);
    expect(new Set([plain, coded, mixed].map(({ key }) => idsOf(key)[2])).size).toBe(3);
  });
});

test('200 functions of which 60% share come, run, are trimmed and go in any order, and answers and bytes are right', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 2 ** 30 }), async (seed) => {
      const options = { devices: 2, seed, gpuBytes: 110 * 1024, hostBytes: 512 * 1024, slabBytes: 32 * 1024 };
      await onSharingEngine(options, async ({ cuda, engine, share, run, idsOf }) => {
        const functions: Chain[] = [];
        const make = async (index: number): Promise<Chain> =>
          await share({
            layerWords: [200, 128, 0, 32 + ((index * 91) % 400), 100 + (index % 3)],
            ...(index % 5 < 3 ? { layerWords: [200, 128, 0, 300, 100 + (index % 3)] } : {}),
            ...(index % 5 < 3 ? { shares: { base: `base ${index % 4}`, layers: 4 + (index % 2) } } : {}),
          });
        for (let index = 0; index < 200; index++) functions.push(await make(index));
        const failures = new Set<string>();
        for (let turn = 0; turn < 300; turn++) {
          const at = cuda.random(functions.length);
          const chain = functions[at]!;
          const gpu = cuda.random(2) as 0 | 1;
          const what = cuda.random(12);
          if (what === 0) {
            await engine.removeFunction(chain.key);
            functions[at] = await make(cuda.random(200));
          } else if (what === 1) await engine.trim(chain.key, gpu, cuda.random(4));
          else if (what === 2) await engine.release(chain.key, gpu, [1, 3, 4].slice(cuda.random(3)));
          else if (what === 3) await engine.drop(chain.key, undefined, cuda.random(2) === 0);
          else {
            const other = functions[cuda.random(functions.length)]!;
            await freeFor(engine, functions, gpu, [chain, other]);
            await inHost(engine, other.key);
            const plan = planFor(other, { mode: 'pipeswitch', primary: gpu });
            const load = engine.load(other.key, { gpu, plan }).catch((error: unknown) => error);
            await run(chain, { mode: cuda.random(2) === 0 ? 'pipeswitch' : 'dha', primary: gpu });
            const failure = await load;
            if (failure instanceof GpuError) failures.add(failure.code);
          }
          const there = [new Map<string, number>(), new Map<string, number>()];
          for (const { key, gpu: at, layers } of engine.residencies()) {
            const { layout } = functions.find((each) => each.key === key)!.program;
            for (const layer of layers) there[at]!.set(idsOf(key)[layer]!, layout.layers[layer]!.bytes);
          }
          for (const [at, { weightBytes }] of engine.memory().entries())
            expect(weightBytes).toBeGreaterThanOrEqual([...there[at]!.values()].reduce((sum, bytes) => sum + bytes, 0));
        }
        // What one needs in host memory may have let another one's read fail.
        expect([...failures].filter((code) => !/^(host|out-of)-memory$/.test(code))).toEqual([]);
        for (const { key } of functions) await engine.removeFunction(key);
        for (const { weightBytes } of engine.memory()) expect(weightBytes).toBe(0);
        expect(engine.hostState().usedBytes).toBe(0);
      });
    }),
    { numRuns: draws(1) },
  );
});

/** Frees others until two functions have room. */
async function freeFor(engine: ModelBench['engine'], functions: readonly Chain[], gpu: number, kept: readonly Chain[]) {
  const neededBytes = 2 * 16 * 1024;
  for (const { key } of functions) {
    if (engine.memory()[gpu]!.freeBytes >= neededBytes) return;
    if (kept.every((each) => each.key !== key)) await engine.evict(key, gpu);
  }
}
