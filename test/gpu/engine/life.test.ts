import { rmSync } from 'node:fs';
import fc from 'fast-check';
import { expect, it, vi } from 'vitest';
import { CudaError } from '../../../src/gpu/driver/types.ts';
import { GpuError } from '../../../src/gpu/types.ts';
import { inHost } from '../../support/in-host.ts';
import { planFor, wordsOf, type Chain } from './chains.ts';
import { layerWords, onEngine, type Bench } from './fixture.ts';
import { draws } from '../../support/draws.ts';

async function codeOf(attempt: Promise<unknown>): Promise<string> {
  try {
    await attempt;
    return 'none';
  } catch (error) {
    return error instanceof GpuError ? error.code : String(error);
  }
}

/** Turns of the event loop, in each of which the model driver goes on by some work. */
async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve));
}

const sizeOf = (chain: Chain): number => chain.program.layout.bytes;

it('hundreds of functions take turns on a small GPU with a small host store, and all answers are right', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 2 ** 30 }), async (seed) => {
      await onEngine(
        { devices: 2, seed, gpuBytes: 80 * 1024, hostBytes: 192 * 1024, slabBytes: 32 * 1024 },
        async ({ cuda, engine, add, run }) => {
          const chains = Array.from({ length: 200 }, (_, index) =>
            add({
              layerWords: [64 + ((index * 37) % 900), 128, 0, 32 + ((index * 91) % 1500), 256],
              constantWords: index % 5 === 0 ? 100 : 0,
              width: 32 * (1 + (index % 16)),
            }),
          );
          const onGpu: [Chain[], Chain[]] = [[], []];
          for (let turn = 0; turn < 400; turn++) {
            const chain = chains[cuda.random(chains.length)]!;
            const primary = cuda.random(2) as 0 | 1;
            const resident = onGpu[primary];
            const isThere = resident.includes(chain);
            // Like the scheduler: frees the least recently used functions, first a suffix of each, until it is enough.
            let bytes = sizeOf(chain) - engine.residency(chain.key, primary).bytes + 4096;
            const memory = engine.memory()[primary]!;
            bytes -= memory.freeBytes;
            for (const victim of resident.slice()) {
              if (bytes <= 0) break;
              if (victim === chain) continue;
              bytes -= await engine.trim(victim.key, primary, 1);
              if (bytes <= 0) break;
              bytes -= await engine.evict(victim.key, primary);
              resident.splice(resident.indexOf(victim), 1);
            }
            if (isThere) resident.splice(resident.indexOf(chain), 1);
            resident.push(chain);
            const mode = (['pipeswitch', 'dha', 'pt', 'interleave'] as const)[cuda.random(4)]!;
            await run(chain, {
              mode,
              primary,
              secondaries: mode === 'pipeswitch' || mode === 'dha' ? [] : [1 - primary],
            });
            const states = engine.residencies();
            for (const {
              gpu,
              weightBytes,
              limitBytes,
              freeBytes,
              scratchBytes,
              constantBytes,
              stagingBytes,
            } of engine.memory()) {
              const sum = states.filter((state) => state.gpu === gpu).reduce((total, state) => total + state.bytes, 0);
              expect(weightBytes).toBe(sum);
              expect(weightBytes + scratchBytes + constantBytes + stagingBytes + freeBytes).toBe(limitBytes);
            }
            expect(engine.hostState().pinnedBytes).toBeLessThanOrEqual(192 * 1024);
          }
          for (const { key } of chains) await engine.removeFunction(key);
          expect(engine.hostState()).toMatchObject({ pinnedBytes: 0, usedBytes: 0 });
          expect(engine.memory().map(({ limitBytes, freeBytes }) => limitBytes - freeBytes)).toEqual([0, 0]);
        },
      );
    }),
    { numRuns: draws(1) },
  );
});

it('a layer fits if free bytes are in pieces: other layers are moved together, and answers stay right', async () => {
  await onEngine({ gpuBytes: 40 * 1024 }, async ({ engine, add, run }) => {
    const small = { layerWords: [256, 256, 256, 256] };
    const functions = Array.from({ length: 8 }, () => add(small));
    for (const chain of functions) await run(chain);
    // Every second layer is a hole of 1 KiB.
    for (const chain of functions) await engine.trim(chain.key, 0, 2);
    const { freeBytes, largestFreeBytes } = engine.memory()[0]!;
    expect(freeBytes).toBeGreaterThan(16 * 1024);
    expect(largestFreeBytes).toBeLessThan(16 * 1024);
    const large = add({ layerWords: [4096] });
    await run(large);
    for (const chain of functions) {
      expect((await run(chain, { mode: 'dha', fromHost: (layer) => layer >= 2 })).start).toBe('warm');
    }
  });
});

/** Two functions whose activations and constants keep free bytes apart, and one that needs nearly all of these. */
async function withPieces({ engine, add, run }: Bench): Promise<{ readonly apart: Chain[]; readonly large: Chain }> {
  // The activations of the second program take a new place, below its constants: theirs of before become a hole.
  const narrow = add({ layerWords: [64], constantWords: 16, width: 512 });
  const wide = add({ layerWords: [64], constantWords: 80, width: 1024 });
  const apart = [narrow, wide];
  for (const chain of apart) for (let warm = 0; warm < 3; warm++) await run(chain);
  for (const { key } of apart) await engine.evict(key, 0);
  const { freeBytes, largestFreeBytes } = engine.memory()[0]!;
  const bytes = freeBytes - 512;
  expect(bytes).toBeGreaterThan(largestFreeBytes);
  return { apart, large: add({ layerWords: [bytes / 4] }) };
}

it('free bytes between activations and constants count as those between layers do', async () => {
  await onEngine({ gpuBytes: 40 * 1024 }, async (bench) => {
    const { engine, run } = bench;
    const { apart, large } = await withPieces(bench);
    expect((await run(large)).start).toBe('cold');
    await engine.evict(large.key, 0);
    // Their launches and graphs take the new addresses.
    for (const chain of apart) for (let warm = 0; warm < 3; warm++) await run(chain);
  });
});

it('a run waits for free bytes that another one keeps apart while it is submitted', async () => {
  await onEngine({ gpuBytes: 40 * 1024 }, async (bench) => {
    const { engine, run } = bench;
    const { large } = await withPieces(bench);
    await engine.stage(large.key);
    const { lane } = engine.internals(large.key, 0);
    const submitting = await lane.mutex.lock();
    let isOver = false;
    const running = run(large).finally(() => (isOver = true));
    for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    submitting[Symbol.dispose]();
    await running;
  });
});

it('a captured graph takes the new addresses of layers that moved, without a run launch by launch', async () => {
  await onEngine({ gpuBytes: 40 * 1024 }, async ({ cuda, engine, add, run }) => {
    const [first, second] = [add(), add()];
    for (let warm = 0; warm < 3; warm++) await run(first);
    expect([cuda.graphsMade, cuda.graphUpdates]).toEqual([1, 0]);
    for (let turn = 1; turn <= 3; turn++) {
      await engine.evict(first.key, 0);
      await engine.evict(second.key, 0);
      // The first to run gets the place of the other one.
      for (const chain of turn % 2 === 1 ? [second, first] : [first, second]) await run(chain);
      const { start, graph } = await run(first);
      expect({ start, graph }).toEqual({ start: 'warm', graph: true });
    }
    expect([cuda.graphsMade, cuda.graphUpdates]).toEqual([1, 3]);
    expect((await run(first)).graph).toBe(true);
    expect([cuda.graphsMade, cuda.graphUpdates]).toEqual([1, 3]);
  });
});

it("a function's own layers are moved too if they are in the way", async () => {
  await onEngine({ gpuBytes: 24 * 1024 }, async ({ engine, add, run }) => {
    const first = add({ layerWords: [1024, 1024] });
    const middle = add({ layerWords: [1024, 2560] });
    const last = add({ layerWords: [1024] });
    await run(first);
    await run(middle);
    await engine.trim(middle.key, 0, 1);
    await run(last);
    await engine.evict(first.key, 0);
    // The holes below and above the kept layer are both too small: the other layer fits only if it moves.
    const { freeBytes, largestFreeBytes } = engine.memory()[0]!;
    expect([freeBytes > 2560 * 4, largestFreeBytes < 2560 * 4]).toEqual([true, true]);
    expect((await run(middle)).start).toBe('partial');
  });
});

it('its own layers make way for the activations of a function as well', async () => {
  await onEngine({ gpuBytes: 24 * 1024 }, async ({ engine, add, run }) => {
    const first = add({ layerWords: [1536] });
    const second = add({ layerWords: [256] });
    await run(first);
    await run(second);
    await engine.evict(first.key, 0);
    // A hole below its layer and one above: the activations fit into neither.
    const wide = add({ layerWords: [2048], width: 1024 + 512 });
    await engine.stage(wide.key);
    await engine.load(wide.key, { gpu: 0, plan: planFor(wide, { mode: 'pipeswitch' }) });
    await engine.evict(second.key, 0);
    const { freeBytes, largestFreeBytes, scratchBytes } = engine.memory()[0]!;
    const arenaBytes = wide.program.arenaBytes;
    expect([freeBytes + scratchBytes > arenaBytes, largestFreeBytes + scratchBytes < arenaBytes]).toEqual([true, true]);
    expect((await run(wide)).start).toBe('warm');
  });
});

it('layers are moved between the copies of a load, those that were copied and those that were not', async () => {
  for (let seed = 1; seed <= 8; seed++) {
    await onEngine({ seed, gpuBytes: 40 * 1024, windowBytes: 256 }, async ({ engine, add, run }) => {
      const first = add({ layerWords: [2048] });
      const loaded = add({ layerWords: Array.from({ length: 64 }, () => 64) });
      const large = add({ layerWords: [23 * 256] });
      await run(first);
      for (const { key } of [loaded, large]) await engine.stage(key);
      let isLoading = true;
      const plan = planFor(loaded, { mode: 'pipeswitch' });
      const loading = engine.load(loaded.key, { gpu: 0, plan }).then(() => (isLoading = false));
      await turns(seed);
      await engine.evict(first.key, 0);
      const { freeBytes, largestFreeBytes } = engine.memory()[0]!;
      expect([freeBytes > sizeOf(large), largestFreeBytes < sizeOf(large), isLoading]).toEqual([true, true, true]);
      await run(large);
      await loading;
      expect((await run(loaded)).start).toBe('warm');
    });
  }
});

it('a run whose layers were lost in a failed move while it waited is cancelled, and the next one loads them', async () => {
  await onEngine({ gpuBytes: 40 * 1024 }, async ({ engine, add, run }) => {
    const first = add({ layerWords: [2048] });
    const moved = add({ layerWords: [1024, 1024] });
    const large = add({ layerWords: [27 * 256] });
    for (const chain of [first, moved]) await run(chain);
    for (const { key } of [moved, large]) await engine.stage(key);
    await engine.evict(first.key, 0);
    await engine.bind(large.key, large.program, 0);
    const { lane, target } = engine.internals(moved.key, 0);
    using copy = vi.spyOn(lane.execution.cuda, 'copy');
    copy.mockImplementationOnce(() => {
      throw new CudaError('misuse', 'cuMemcpyAsync', 600, 'CUDA_ERROR_NOT_READY', 'the driver refused');
    });
    // The large one waits for the lane, and then the other one behind it.
    const submitting = await lane.mutex.lock();
    const fixing = await target.residency(lane).enter(undefined);
    const making = codeOf(run(large));
    await turns(20);
    const waiting = codeOf(run(moved));
    fixing[Symbol.dispose]();
    await turns(20);
    submitting[Symbol.dispose]();
    expect([await making, await waiting]).toEqual(['misuse', 'cancelled']);
    expect((await run(moved)).start).toBe('partial');
  });
});

it('bytes that a helping GPU still writes are waited for after layers were moved together, too', async () => {
  await onEngine({ devices: 2, gpuBytes: 40 * 1024 }, async ({ cuda, engine, add, run }) => {
    const first = add({ layerWords: [2048] });
    const kept = add({ layerWords: [1024] });
    const left = add({ layerWords: [1024, 1024, 1024] });
    const large = add({ layerWords: [32 * 256] });
    for (const chain of [first, kept]) await run(chain);
    for (const { key } of [left, large]) await engine.stage(key);
    await engine.bind(large.key, large.program, 0);
    const plan = planFor(left, { mode: 'pt', secondaries: [1] });
    const loading = codeOf(engine.load(left.key, { gpu: 0, plan }));
    const { lane, target } = engine.internals(left.key, 0);
    while (target.residency(lane).ready(2) === null) await Promise.resolve();
    await engine.evict(left.key, 0);
    await engine.evict(first.key, 0);
    await run(large);
    await loading;
    expect(cuda.races).toEqual([]);
  });
});

it('a run or load of what is not in host memory is refused by layer, one of what is on its way waits for it', async () => {
  await onEngine({ windowBytes: 2048 }, async ({ engine, add }) => {
    const chain = add();
    const plan = planFor(chain, { mode: 'pipeswitch' });
    const go = () => engine.run(chain.key, chain.program, [chain.input], { gpu: 0, plan });
    await expect(go()).rejects.toThrow("layer 0 of function 'chain0' is not in pinned host memory");
    expect(await codeOf(engine.load(chain.key, { gpu: 0, plan }))).toBe('host-memory');
    // A run that is asked for right behind an order to read finds its memory.
    const staging = engine.stage(chain.key);
    const { fromDisk, outputs } = await go();
    expect([fromDisk, wordsOf(outputs)]).toEqual([true, chain.expected]);
    expect(await staging).toMatchObject({ kind: 'staged', bytes: sizeOf(chain) });
    // All its layers are on the GPU: it needs no copy here.
    expect(await engine.drop(chain.key)).toBe(sizeOf(chain));
    expect((await go()).fromDisk).toBe(false);
    await engine.trim(chain.key, 0, 2);
    expect(await codeOf(go())).toBe('host-memory');
  });
});

it('an order to read without room is refused with the largest free range, and takes nothing', async () => {
  await onEngine({ hostBytes: 32 * 1024, slabBytes: 16 * 1024 }, async ({ engine, add, run }) => {
    const [first, second, third] = [add(), add(), add()];
    await run(first);
    const before = engine.hostState().usedBytes;
    await engine.stage(second.key, [3, 5]);
    const staged = await engine.stage(third.key);
    expect(staged).toMatchObject({ kind: 'refused' });
    const { largestFreeBytes } = staged as { readonly largestFreeBytes: number };
    expect(largestFreeBytes).toBeLessThan(sizeOf(third));
    expect(engine.hostTier(third.key)).toEqual({ bytes: 0, filledBytes: 0 });
    // Layers are here or not each for itself.
    expect(engine.hostState().usedBytes).toBe(before + engine.hostTier(second.key).bytes);
    expect(await engine.drop(second.key, [3])).toBe(4096);
    expect(engine.hostTier(second.key).filledBytes).toBe(engine.hostState().usedBytes - before);
  });
});

it('what a run reads from is freed when the run has ended, and an order to read waits for that', async () => {
  await onEngine({ hostBytes: 20 * 1024, slabBytes: 20 * 1024 }, async ({ engine, add, run }) => {
    const [first, second] = [add(), add()];
    await engine.stage(first.key);
    const { target } = engine.internals(first.key, 0);
    const reading = await target.lease([0]);
    const dropping = engine.drop(first.key);
    let isStaged = false;
    const staging = engine.stage(second.key).finally(() => (isStaged = true));
    await turns(20);
    expect([isStaged, engine.hostTier(first.key).bytes]).toEqual([false, sizeOf(first)]);
    reading[Symbol.dispose]();
    expect(await dropping).toBe(sizeOf(first));
    expect(await staging).toMatchObject({ kind: 'staged', bytes: sizeOf(second) });
    await run(second);
  });
});

it('with a smaller budget, empty slabs are freed at once and others when they become empty', async () => {
  await onEngine({ hostBytes: 64 * 1024, slabBytes: 16 * 1024 }, async ({ engine, add }) => {
    // Each takes a little more than a slab.
    const chains = Array.from({ length: 3 }, () => add({ layerWords: [...layerWords, 512] }));
    for (const { key } of chains) await engine.stage(key);
    await engine.drop(chains[0]!.key);
    await engine.drop(chains[1]!.key);
    expect(engine.hostState().pinnedBytes).toBe(64 * 1024);
    await engine.resizeHost(32 * 1024);
    expect(engine.hostState()).toMatchObject({ budgetBytes: 32 * 1024, pinnedBytes: 48 * 1024 });
    expect(await engine.stage(chains[0]!.key)).toMatchObject({ kind: 'refused' });
    for (const { key } of chains) await engine.drop(key);
    expect(engine.hostState()).toMatchObject({ usedBytes: 0, pinnedBytes: 32 * 1024 });
    expect(await engine.stage(chains[0]!.key)).toMatchObject({ kind: 'staged' });
  });
});

it('the error for a function that exceeds the GPU has its name and the bytes', async () => {
  await onEngine({ gpuBytes: 8 * 1024 }, async ({ engine, add, run }) => {
    const chain = add();
    await expect(run(chain)).rejects.toThrow(/GPU 0 has \d+ bytes free and function 'chain0' needs \d+ more/);
    expect(await codeOf(run(chain))).toBe('out-of-memory');
    expect(engine.memory()[0]!.weightBytes).toBe(0);
    // It still runs from host memory alone.
    expect((await run(chain, { mode: 'dha', fromHost: () => true })).start).toBe('warm');
  });
});

it('weights are loaded ahead while another function executes', async () => {
  await onEngine({}, async ({ engine, add, run }) => {
    const [busy, next] = [add(), add()];
    await run(busy);
    await engine.stage(next.key);
    const plan = planFor(next, { mode: 'pipeswitch' });
    await Promise.all([run(busy), engine.load(next.key, { gpu: 0, plan }), run(busy)]);
    expect(engine.residency(next.key, 0).bytes).toBe(plan.bytesGpu);
    expect(await engine.load(next.key, { gpu: 0, plan })).toEqual({ bytes: 0, fromDisk: false });
    expect((await run(next)).start).toBe('warm');
  });
});

it('a run continues where a load-ahead stopped, and both succeed', async () => {
  for (let seed = 1; seed <= 8; seed++) {
    await onEngine({ seed, windowBytes: 2048 }, async ({ engine, add, run }) => {
      const chain = add();
      await engine.stage(chain.key);
      const plan = planFor(chain, { mode: 'pipeswitch' });
      const loading = engine.load(chain.key, { gpu: 0, plan });
      for (let turn = 0; turn < seed; turn++) await new Promise((resolve) => setImmediate(resolve));
      const result = await run(chain);
      await loading;
      expect(['partial', 'cold', 'warm']).toContain(result.start);
      expect((await run(chain)).start).toBe('warm');
    });
  }
});

it('a cancelled or evicted load leaves a prefix of complete layers', async () => {
  for (let seed = 1; seed <= 8; seed++) {
    await onEngine({ seed, devices: 2, windowBytes: 2048 }, async ({ engine, add, run }) => {
      const chain = add();
      await engine.stage(chain.key);
      const shape = { mode: 'pt' as const, secondaries: [1] };
      const plan = planFor(chain, shape);
      const all = plan.layers.flatMap(({ method }, layer) => (method === 'load' ? [layer] : []));
      const abort = new AbortController();
      const loading = codeOf(engine.load(chain.key, { gpu: 0, plan, signal: abort.signal }));
      for (let turn = 0; turn < seed; turn++) await new Promise((resolve) => setImmediate(resolve));
      abort.abort();
      expect(['cancelled', 'none']).toContain(await loading);
      const { layers, bytes } = engine.residency(chain.key, 0);
      expect(layers).toEqual(all.slice(0, layers.length));
      expect(engine.memory().map(({ weightBytes, stagingBytes }) => [weightBytes, stagingBytes])).toEqual([
        [bytes, 0],
        [0, 0],
      ]);
      await run(chain, shape);
      await engine.evict(chain.key, 0);
      const evicted = codeOf(engine.load(chain.key, { gpu: 0, plan }));
      for (let turn = 0; turn < seed; turn++) await new Promise((resolve) => setImmediate(resolve));
      await engine.evict(chain.key, 0);
      expect(['cancelled', 'none']).toContain(await evicted);
      expect(engine.memory()[0]!.weightBytes).toBe(0);
      await run(chain, shape);
    });
  }
});

it('small layers that lie together come in one copy, up to a share of the window', async () => {
  await onEngine({ windowBytes: 512 * 1024 }, async ({ engine, add, run }) => {
    const chain = add({ layerWords: [512, 64, 64, 128, 64, 256, 64, 64] });
    await engine.stage(chain.key);
    const { lane } = engine.internals(chain.key, 0);
    using copy = vi.spyOn(lane.load.cuda, 'copy');
    const { start, loadedBytes } = await run(chain, { mode: 'pipeswitch' });
    expect({ start, loadedBytes }).toEqual({ start: 'cold', loadedBytes: 4 * 1216 });
    expect(copy.mock.calls.map(([, , bytes]) => bytes)).toEqual([2048 + 1024, 256 + 1024, 512]);
  });
});

/** Layers of 256 bytes, for many launches in little memory. */
const manyLayers = (count: number): readonly number[] => Array.from({ length: count }, () => 64);

it('copies grow as a load proceeds, and become smaller again towards its end', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 20, maxLength: 120 }),
      fc.constantFrom(2 ** 17, 2 ** 18, 2 ** 20),
      async (sizes, windowBytes) => {
        const layerWords = sizes.map((size) => 64 * size);
        await onEngine({ windowBytes, hostBytes: 2 ** 21, slabBytes: 2 ** 21 }, async ({ engine, add, run }) => {
          const chain = add({ layerWords });
          await engine.stage(chain.key);
          const { lane } = engine.internals(chain.key, 0);
          using copy = vi.spyOn(lane.load.cuda, 'copy');
          await run(chain, { mode: 'pipeswitch' });
          const copies = copy.mock.calls.map(([, , bytes]) => bytes);
          let leftBytes = 4 * layerWords.reduce((sum, words) => sum + words, 0);
          let next = 0;
          for (const [index, bytes] of copies.entries()) {
            const grown = Math.min((windowBytes / 512) * 1.25 ** index, windowBytes / 16);
            const most = Math.max(windowBytes / 512, Math.min(grown, leftBytes / 8));
            const firstBytes = 4 * layerWords[next]!;
            expect(bytes - firstBytes).toBeLessThanOrEqual(most);
            leftBytes -= bytes;
            for (let left = bytes; left > 0; next++) left -= 4 * layerWords[next]!;
            // It has all that it may have.
            expect(bytes - firstBytes + 4 * (layerWords[next] ?? Infinity)).toBeGreaterThan(most);
          }
          expect([leftBytes, next]).toEqual([0, layerWords.length]);
        });
      },
    ),
    { numRuns: draws(6) },
  );
});

it('a partial run launches what is in place as graphs, one for some sixteen launches, and the rest one by one', async () => {
  await onEngine({}, async ({ engine, add, run }) => {
    const chain = add({ layerWords: manyLayers(100) });
    await engine.stage(chain.key);
    await run(chain);
    const { lane } = engine.internals(chain.key, 0);
    const partial = async (kept: number): Promise<{ readonly launches: number; readonly graphs: number }> => {
      await engine.trim(chain.key, 0, kept);
      using launch = vi.spyOn(lane.execution.cuda, 'launch');
      using graph = vi.spyOn(lane.execution.cuda, 'launchGraph');
      using capture = vi.spyOn(lane.execution.cuda, 'capture');
      expect((await run(chain)).start).toBe('partial');
      // Those that are captured are submitted, but not launched. One more brings the input.
      const captured = capture.mock.calls.length * 16;
      return { launches: launch.mock.calls.length - captured - 1, graphs: graph.mock.calls.length };
    };
    // Kernels of libraries are loaded by the first run of a piece.
    expect(await partial(50)).toEqual({ launches: 100, graphs: 0 });
    expect(await partial(50)).toEqual({ launches: 100 - 48, graphs: 3 });
    expect(await partial(70)).toEqual({ launches: 100 - 48, graphs: 3 });
    expect(await partial(70)).toEqual({ launches: 100 - 64, graphs: 4 });
    expect(await partial(15)).toEqual({ launches: 100, graphs: 0 });
  });
});

it('graphs of pieces have the addresses of now, whatever goes, comes, moves or is read in host memory', async () => {
  const step = fc.record({
    what: fc.constantFrom('run', 'trim', 'other', 'host', 'ahead'),
    kept: fc.nat(40),
    turns: fc.nat(3),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 16 }), fc.nat(1000), async (steps, seed) => {
      await onEngine({ seed: seed + 1, gpuBytes: 34 * 1024 }, async ({ engine, add, run }) => {
        const [chain, other] = [add({ layerWords: manyLayers(40), tied: true }), add({ layerWords: manyLayers(70) })];
        for (const { what, kept, turns: runs } of steps) {
          if (what === 'trim') await engine.trim(chain.key, 0, kept);
          else if (what === 'ahead') {
            await engine.trim(other.key, 0, 0);
            await engine.trim(chain.key, 0, Math.min(kept, 10));
            await inHost(engine, chain.key);
            const plan = planFor(chain, { mode: 'pipeswitch' });
            const loading = codeOf(engine.load(chain.key, { gpu: 0, plan }));
            await turns(runs);
            // The run comes before what has been submitted of the load has ended.
            await engine.trim(chain.key, 0, 36);
            await run(chain);
            await loading;
          } else if (what === 'other') {
            // There is not room for both, so that one's layers come to where the other's were.
            await engine.trim(chain.key, 0, Math.min(kept, 30));
            await run(other);
            await engine.trim(other.key, 0, kept);
          } else {
            await engine.trim(other.key, 0, 0);
            const fromHost = (layer: number): boolean => what === 'host' && layer % 8 === kept % 8;
            for (let turn = 0; turn <= runs; turn++) await run(chain, { mode: 'dha', fromHost });
          }
        }
        await engine.trim(other.key, 0, 0);
        await run(chain);
        expect((await run(chain)).start).toBe('warm');
      });
    }),
    { numRuns: draws(10) },
  );
});

it('small layers stay with those before them, and do not fill what earlier slabs have left', async () => {
  await onEngine({ windowBytes: 2 ** 21, slabBytes: 4096 }, async ({ engine, add, run }) => {
    // Slabs of 1024 words: of the first, 256 are left when the third layer comes.
    const chain = add({ layerWords: [256, 512, 320, 64, 320, 64, 128] });
    await engine.stage(chain.key);
    const { lane } = engine.internals(chain.key, 0);
    using copy = vi.spyOn(lane.load.cuda, 'copy');
    await run(chain, { mode: 'pipeswitch' });
    expect(copy.mock.calls.map(([, , bytes]) => bytes)).toEqual([4 * 768, 4 * 896]);
  });
});

it('small layers fill what slabs have left where there is no other room', async () => {
  await onEngine({ hostBytes: 8192, slabBytes: 4096 }, async ({ add, run }) => {
    const chain = add({ layerWords: [256, 512, 320, 64, 320, 64, 320, 128, 64] });
    expect((await run(chain)).start).toBe('cold');
  });
});

it('no copy goes over two regions of pinned memory, though they adjoin', async () => {
  await onEngine({ windowBytes: 2 ** 21, slabBytes: 4096, hostAdjoins: true }, async ({ engine, add, run }) => {
    const chain = add({ layerWords: Array.from({ length: 8 }, () => 256) });
    await engine.stage(chain.key);
    const { lane } = engine.internals(chain.key, 0);
    using copy = vi.spyOn(lane.load.cuda, 'copy');
    await run(chain, { mode: 'pipeswitch' });
    expect(copy.mock.calls.map(([, , bytes]) => bytes)).toEqual([4096, 4096]);
  });
});

it('a load waits while a window of copies is under way, so that it can be cancelled', async () => {
  await onEngine({ windowBytes: 8192 }, async ({ engine, add, run }) => {
    const chain = add({ layerWords: Array.from({ length: 32 }, () => 1024) });
    await engine.stage(chain.key);
    const abort = new AbortController();
    const plan = planFor(chain, { mode: 'pipeswitch' });
    const loading = codeOf(engine.load(chain.key, { gpu: 0, plan, signal: abort.signal }));
    await new Promise((resolve) => setImmediate(resolve));
    abort.abort();
    expect(await loading).toBe('cancelled');
    expect(engine.residency(chain.key, 0).layers.length).toBeLessThan(32);
    await run(chain);
  });
});

it('a cancelled cold start leaves a prefix of complete layers', async () => {
  for (let seed = 1; seed <= 8; seed++) {
    await onEngine({ seed, windowBytes: 2048, lookaheadBytes: 0 }, async ({ engine, add, run }) => {
      const chain = add();
      await engine.stage(chain.key);
      const abort = new AbortController();
      const running = codeOf(run(chain, {}, { signal: abort.signal }));
      for (let turn = 0; turn < seed; turn++) await new Promise((resolve) => setImmediate(resolve));
      abort.abort();
      expect(['cancelled', 'none']).toContain(await running);
      // The next run gets its turn only after the submission of the cancelled one has stopped.
      const { layers } = engine.residency(chain.key, 0);
      await run(chain);
      expect(engine.residency(chain.key, 0).layers.slice(0, layers.length)).toEqual(layers);
    });
  }
});

it('outputs that are lent stay as they are until they are released, also of a run that nobody waits for', async () => {
  for (let seed = 1; seed <= 8; seed++) {
    await onEngine({ seed }, async ({ engine, add, run }) => {
      const [chain, other] = [add(), add()];
      const addressOfNext = async (): Promise<number> => {
        using buffer = await engine.allocateIo(64);
        return buffer.address;
      };
      const address = await addressOfNext();
      const lent = await run(chain, {}, { lends: true });
      const abort = new AbortController();
      const running = codeOf(run(other, {}, { lends: true, signal: abort.signal }).then(({ release }) => release?.()));
      for (let turn = 0; turn < 2 * seed; turn++) await new Promise((resolve) => setImmediate(resolve));
      abort.abort();
      expect(['cancelled', 'none']).toContain(await running);
      await run(other);
      expect(wordsOf(lent.outputs)).toEqual(chain.expected);
      expect(await addressOfNext()).not.toBe(address);
      lent.release!();
      expect(await addressOfNext()).toBe(address);
    });
  }
});

it('18 runs at once on one GPU are executed one after the other, each with its own answer', async () => {
  await onEngine({}, async ({ add, run }) => {
    const chains = Array.from({ length: 6 }, () => add());
    const results = await Promise.all([...chains, ...chains, ...chains].map((chain) => run(chain, { mode: 'dha' })));
    expect(results.filter(({ start }) => start === 'cold')).toHaveLength(chains.length);
  });
});

it('a missing weight file fails the read by name, and a run of the function as well', async () => {
  await onEngine({}, async ({ engine, add, run }) => {
    const chain = add();
    const [weight] = chain.program.layout.weights;
    rmSync(weight!.source.path);
    expect(await codeOf(run(chain))).toBe('weights-unreadable');
    await expect(run(chain)).rejects.toThrow(/weight 'w0' cannot be read from .*chain0\.weights/);
    expect(engine.hostTier(chain.key)).toEqual({ bytes: 0, filledBytes: 0 });
    expect(engine.memory()[0]!.weightBytes).toBe(0);
    await run(add());
  });
});

it('a function that is removed while its first run or load begins leaves nothing on the GPU or the host', async () => {
  for (const isRun of [true, false]) {
    for (let seed = 0; seed < 12; seed++) {
      await onEngine({ seed: seed + 1 }, async ({ engine, add, run }) => {
        const chain = add({ constantWords: 16 });
        const plan = planFor(chain, { mode: 'pipeswitch' });
        const load = async (): Promise<unknown> => {
          await inHost(engine, chain.key);
          return await engine.load(chain.key, { gpu: 0, plan });
        };
        const starting = codeOf(isRun ? run(chain) : load());
        for (let turn = 0; turn < seed; turn++) await Promise.resolve();
        if (seed > 6) await turns(seed - 6);
        await engine.removeFunction(chain.key);
        expect(['none', 'unknown-function', 'cancelled']).toContain(await starting);
        const { limitBytes, freeBytes } = engine.memory()[0]!;
        expect(limitBytes - freeBytes).toBe(0);
        expect(engine.hostState()).toMatchObject({ usedBytes: 0, functions: [] });
      });
    }
  }
});

it('inputs, plans and names that do not fit are refused by name', async () => {
  await onEngine({}, async ({ engine, add }) => {
    const chain = add();
    const plan = planFor(chain, { mode: 'pipeswitch' });
    const attempt = (change: object, inputs = [chain.input]) =>
      engine.run(chain.key, chain.program, inputs, { gpu: 0, plan, ...change });
    await expect(attempt({}, [])).rejects.toThrow("input 'x' is missing");
    await expect(attempt({}, [{ ...chain.input, shape: [16] }])).rejects.toThrow(/input 'x' is UINT32 \[16\]/);
    await expect(attempt({}, [chain.input, { ...chain.input, name: 'z' }])).rejects.toThrow("'z' is not an input");
    await expect(attempt({ plan: { ...plan, layers: plan.layers.slice(1) } })).rejects.toThrow(
      /plan has 8 layers, and function 'chain0' has 9/,
    );
    expect(await codeOf(attempt({ gpu: 3 }))).toBe('unknown-gpu');
    expect(await codeOf(engine.evict('nobody', 0))).toBe('unknown-function');
  });
});

it('with a poisoned context everything is refused as poisoned, and the engine still closes', async () => {
  await onEngine({}, async ({ cuda, engine, add, run }) => {
    const chain = add();
    await run(chain);
    cuda.broken = 'poisoned';
    expect(await codeOf(run(chain))).toBe('poisoned');
    expect(engine.broken?.code).toBe('poisoned');
    expect(engine.broken?.retriable).toBe(true);
    expect(await codeOf(engine.evict(chain.key, 0))).toBe('poisoned');
  });
});

it('a device that is lost during runs rejects them all as lost', async () => {
  await onEngine({ windowBytes: 2048 }, async ({ cuda, engine, add, run }) => {
    const chains = [add(), add(), add()];
    for (const { key } of chains) await engine.stage(key);
    const codes = Promise.all(chains.map((chain) => codeOf(run(chain))));
    await new Promise((resolve) => setImmediate(resolve));
    cuda.broken = 'device-lost';
    expect(await codes).toEqual(['device-lost', 'device-lost', 'device-lost']);
  });
});
