/** Counts for pinned and device memory: how often it is pinned and freed, and how many copies move layers together. */
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { IoBuffers } from '../../../src/gpu/engine/pinned-pool.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { inHost } from '../../support/in-host.ts';
import { makeChain, planFor, wordsOf } from './chains.ts';
import { onEngine } from './fixture.ts';
import { ModelCuda } from './model-cuda.ts';

const mebibyte = 2 ** 20;
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-memory-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

it('a thousand runs with large inputs pin each slab once, on another thread', async () => {
  const cuda = new ModelCuda({ devices: 1, deviceBytes: mebibyte });
  using io = new IoBuffers(cuda, 'registered', () => false);
  const afterRun: number[] = [];
  for (let run = 0; run < 1000; run++) {
    // Two buffers at a time, of 8 to 10 MiB.
    using _first = await io.allocate((8 + (run % 3)) * mebibyte);
    using _second = await io.allocate(9 * mebibyte);
    afterRun.push(cuda.pinned);
  }
  expect(cuda.counts().allocations).toBe(cuda.pinned);
  expect(cuda.pinnedAside).toBe(cuda.pinned);
  expect(new Set(afterRun.slice(2))).toEqual(new Set([3]));
});

it('buffers that exceed the budget are freed when they are released', async () => {
  const cuda = new ModelCuda({ devices: 1, deviceBytes: mebibyte });
  using io = new IoBuffers(cuda, 'registered', () => false);
  const buffers = await Promise.all(Array.from({ length: 10 }, () => io.allocate(48 * mebibyte)));
  expect(cuda.counts().hostBytes).toBe(480 * mebibyte);
  for (const buffer of buffers) buffer[Symbol.dispose]();
  expect(cuda.counts().hostBytes).toBeLessThanOrEqual(256 * mebibyte);
  expect(io.trim()).toBe(true);
  expect(cuda.counts().hostBytes).toBe(0);
});

it('three functions that take turns use the slabs of two, and nothing is pinned again', async () => {
  const options = { hostBytes: 32 * 1024, slabBytes: 16 * 1024, gpuBytes: 64 * 1024 };
  await onEngine(options, async ({ cuda, engine, add, run }) => {
    const chains = Array.from({ length: 3 }, () => add({ layerWords: [1024, 1024, 1024] }));
    for (let turn = 0; turn < 30; turn++) {
      const chain = chains[turn % 3]!;
      await run(chain);
      await engine.evict(chain.key, 0);
    }
    // Two slabs for weights and one for inputs and outputs.
    expect(cuda.pinnedAside).toBe(3);
    expect(engine.hostState().pinnedBytes).toBe(32 * 1024);
  });
});

it('calls are answered while the first large input of a function is being pinned', async () => {
  const cuda = new ModelCuda({ devices: 1, deviceBytes: mebibyte });
  using io = new IoBuffers(cuda, 'registered', () => false);
  (await io.allocate(1024))[Symbol.dispose]();
  const system = new EventEmitter();
  cuda.pinning = once(system, 'pinned').then(() => undefined);
  let isThere = false;
  const large = io.allocate(32 * mebibyte).then((buffer) => {
    isThere = true;
    return buffer;
  });
  for (let call = 0; call < 20; call++) (await io.allocate(1024))[Symbol.dispose]();
  expect(isThere).toBe(false);
  system.emit('pinned');
  (await large)[Symbol.dispose]();
});

it('a function is answered while the memory of another one is being pinned', async () => {
  await onEngine({ hostBytes: mebibyte, slabBytes: 16 * 1024 }, async ({ cuda, add, run }) => {
    const [small, large] = [add({ layerWords: [64] }), add({ layerWords: [16 * 1024] })];
    await run(small);
    const system = new EventEmitter();
    cuda.pinning = once(system, 'pinned').then(() => undefined);
    let isThere = false;
    const first = run(large).then(() => (isThere = true));
    for (let times = 0; times < 20; times++) await run(small);
    expect(isThere).toBe(false);
    system.emit('pinned');
    await first;
  });
});

it('a function in host memory is loaded while the memory of another one is being pinned', async () => {
  await onEngine({ hostBytes: mebibyte, slabBytes: 16 * 1024 }, async ({ cuda, engine, add, run }) => {
    const [small, large] = [add({ layerWords: [64] }), add({ layerWords: [16 * 1024] })];
    await run(small);
    const system = new EventEmitter();
    cuda.pinning = once(system, 'pinned').then(() => undefined);
    const first = run(large);
    for (let times = 0; times < 3; times++) {
      await engine.evict(small.key, 0);
      expect((await run(small)).start).toBe('cold');
    }
    system.emit('pinned');
    await first;
  });
});

describe.skipIf(emulatorMissing)('on the emulated driver', () => {
  it('a large layer behind a small hole is moved in a handful of copies', async () => {
    const gpuBytes = 16 * mebibyte;
    await withEmulatedCuda({ devices: [{ memoryBytes: 24 * mebibyte }] }, async (cuda, emulator) => {
      const engine = new Engine(cuda, { hostBytes: 32 * mebibyte, slabBytes: mebibyte, gpuBytes });
      const add = (name: string, layerWords: readonly number[]) => {
        const chain = makeChain({ folder, name, layerWords });
        engine.addFunction(name, chain.program.layout);
        return chain;
      };
      const run = async (chain: ReturnType<typeof add>) => {
        const plan = planFor(chain, { mode: 'pipeswitch' });
        await inHost(engine, chain.key);
        const { outputs } = await engine.run(chain.key, chain.program, [chain.input], { gpu: 0, plan });
        expect(wordsOf(outputs)).toEqual(chain.expected);
      };
      const tiny = add('tiny', [1536]);
      const huge = add('huge', [(10.5 * mebibyte) / 4]);
      await run(tiny);
      await run(huge);
      await engine.evict('tiny', 0);
      const { freeBytes, largestFreeBytes } = engine.memory()[0]!;
      expect(freeBytes - largestFreeBytes).toBe(6144);
      const filling = add('filling', [(freeBytes - 1024) / 4]);
      emulator.forget();
      await run(filling);
      // Input, weights, output, and two moves of three pieces, each as large as the hole above.
      expect(emulator.report().calls['cuMemcpyAsync']).toBeLessThanOrEqual(12);
      await run(huge);
      await engine.close();
    });
  });
});
