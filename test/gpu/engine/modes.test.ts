import { describe, expect, it } from 'vitest';
import { planFor } from './chains.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { onEmulatedEngine, onEngine, type Bench } from './fixture.ts';

const modes = ['baseline', 'pipeswitch', 'dha', 'pt', 'pt+dha', 'interleave'] as const;

const drivers = [
  { driver: 'the model driver', isEmulated: false, seeds: [1, 2, 3] },
  // The chain of seed 2 has tied weights.
  { driver: 'the emulated driver', isEmulated: true, seeds: [2] },
];
const machines = drivers.flatMap((driver) => [1, 2, 4].map((gpus) => Object.assign({ gpus }, driver)));

describe.each(machines)('on $gpus GPUs of $driver', ({ gpus, isEmulated, seeds }) => {
  const isMissing = isEmulated && emulatorMissing;
  const use = isEmulated ? sharedEmulatedCuda({ devices: gpus }) : undefined;
  const on = async (seed: number | undefined, test: (bench: Bench) => Promise<void>): Promise<void> =>
    await (use === undefined
      ? onEngine({ devices: gpus, ...(seed === undefined ? {} : { seed }) }, test)
      : onEmulatedEngine(use, {}, test));

  describe.each(modes)('mode %s', (mode) => {
    const isParallel = mode === 'pt' || mode === 'pt+dha' || mode === 'interleave';
    const secondaries = isParallel ? Array.from({ length: gpus - 1 }, (_, index) => index + 1) : [];
    const shape = { mode, secondaries };

    it.skipIf(isMissing).each(seeds)(
      'gives right answers cold, warm, partly resident, evicted and reloaded (seed %i)',
      async (seed) => {
        await on(seed, async ({ engine, add, run }) => {
          const chain = add({ tied: seed === 2 });
          const loaded = planFor(chain, shape).layers.filter(({ method }) => method === 'load').length;
          expect((await run(chain, shape)).start).toBe('cold');
          expect(await run(chain, shape)).toMatchObject({ start: 'warm', loadedBytes: 0 });
          expect((await run(chain, shape)).graph).toBe(true);
          expect((await run(chain, shape)).graph).toBe(true);
          for (const kept of [1, Math.floor(loaded / 2), loaded - 1]) {
            await engine.trim(chain.key, 0, kept);
            expect(engine.residency(chain.key, 0).layers).toHaveLength(kept);
            expect((await run(chain, shape)).start).toBe('partial');
            expect(engine.residency(chain.key, 0).loading).toBe(false);
            expect(engine.residency(chain.key, 0).layers).toHaveLength(loaded);
          }
          await engine.evict(chain.key, 0);
          expect(engine.memory().map(({ weightBytes }) => weightBytes)).toEqual(engine.devices.map(() => 0));
          expect((await run(chain, shape)).start).toBe('cold');
          expect(engine.memory().map(({ stagingBytes }) => stagingBytes)).toEqual(engine.devices.map(() => 0));
        });
      },
    );

    it.skipIf(isMissing)('records a timeline of all layers', async () => {
      await on(undefined, async ({ add, run }) => {
        const chain = add();
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
          expect(layer.execution.startMs).toBeGreaterThanOrEqual((layer.migration ?? layer.copy)?.endMs ?? 0);
          busyMs = layer.execution.endMs;
        }
        expect(timeline!.latencyMs).toBe(busyMs);
        const warm = await run(chain, shape, { trace: true });
        expect(warm.timeline!.stallMs).toBe(0);
        expect(warm.timeline!.layers.every(({ copy }) => copy === undefined)).toBe(true);
      });
    });
  });
});

it('a helper without peer access or without memory does not help, and the answer is right', async () => {
  await onEngine({ devices: 2, peers: () => false }, async ({ add, run }) => {
    const { timeline } = await run(add(), { mode: 'pt', secondaries: [1] }, { trace: true });
    expect(timeline!.layers.every(({ migration }) => migration === undefined)).toBe(true);
  });
  await onEngine({ devices: 2, gpuBytes: 24 * 1024 }, async ({ add, run }) => {
    await run(add(), { primary: 1 });
    await run(add(), { mode: 'pt', secondaries: [1] });
  });
});

it('layers on the GPU are used there, even if the next plan reads them from the host', async () => {
  await onEngine({ devices: 2 }, async ({ add, run, engine }) => {
    const chain = add();
    await run(chain, { mode: 'pipeswitch' });
    const all = engine.residency(chain.key, 0).layers;
    const again = await run(chain, { mode: 'dha', fromHost: () => true }, { trace: true });
    expect(again.start).toBe('warm');
    expect(again.timeline!.layers.some(({ fromHost }) => fromHost)).toBe(false);
    expect(engine.residency(chain.key, 0).layers).toEqual(all);
  });
});
