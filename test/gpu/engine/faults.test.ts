/** What the driver may do to the engine at the wrong moment, on the emulated driver. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CudaError } from '../../../src/gpu/driver/types.ts';
import { Engine } from '../../../src/gpu/engine/index.ts';
import { GpuError } from '../../../src/gpu/types.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { makeChain, planFor, wordsOf, type Chain } from './chains.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-faults-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const settings = { hostBytes: 2 ** 20, slabBytes: 2 ** 16, gpuBytes: 2 ** 18 };

function add(engine: Engine, name: string): Chain {
  const chain = makeChain({ folder, name, layerWords: [512, 300, 0, 1024, 64] });
  engine.addFunction(chain.key, chain.program.layout);
  return chain;
}

const run = (engine: Engine, chain: Chain) =>
  engine.run(chain.key, chain.program, [chain.input], { gpu: 0, plan: planFor(chain, { mode: 'pipeswitch' }) });

async function codeOf(attempt: Promise<unknown>): Promise<string> {
  try {
    await attempt;
    return 'none';
  } catch (error) {
    return error instanceof GpuError ? error.code : String(error);
  }
}

describe.skipIf(emulatorMissing)('on the emulated driver', () => {
  it('no device memory for the engine is an error that leaves nothing behind', async () => {
    await withEmulatedCuda({ devices: 2 }, (cuda, emulator) => {
      emulator.failNext('cuMemAlloc_v2', 2, 1);
      const open = (): Engine => new Engine(cuda, settings);
      expect(open).toThrow(CudaError);
    });
  });

  it('no pinned memory for the second slab makes the first one serve, and then the budget is what there is', async () => {
    await withEmulatedCuda({}, async (cuda, emulator) => {
      const engine = new Engine(cuda, { ...settings, slabBytes: 8192 });
      const [first, second] = [add(engine, 'first'), add(engine, 'second')];
      expect(wordsOf((await run(engine, first)).outputs)).toEqual(first.expected);
      emulator.failNext('cuMemHostAlloc', 2);
      // What the first had of host memory goes to disk: it is on the GPU.
      expect(wordsOf((await run(engine, second)).outputs)).toEqual(second.expected);
      expect(engine.hostTier('first').tier).toBe('disk');
      await engine.close();
    });
  });

  it('a kernel that fails poisons the engine: all calls say so, and it still closes', async () => {
    await withEmulatedCuda({ allow: ['leaks', 'faults', 'freesInUse'] }, async (cuda, emulator) => {
      const engine = new Engine(cuda, settings);
      const chain = add(engine, 'chain');
      await run(engine, chain);
      emulator.failNext('cuLaunchKernelEx', 700);
      expect(await codeOf(run(engine, chain))).toBe('poisoned');
      expect(engine.broken?.code).toBe('poisoned');
      expect(await codeOf(run(engine, chain))).toBe('poisoned');
      await engine.close();
    });
  });

  it('a device that is lost ends all that is in flight as lost', async () => {
    await withEmulatedCuda({ allow: ['leaks', 'faults', 'freesInUse'] }, async (cuda, emulator) => {
      const engine = new Engine(cuda, settings);
      const chains = [add(engine, 'one'), add(engine, 'two'), add(engine, 'three')];
      for (const chain of chains) await engine.bind(chain.key, chain.program, 0);
      emulator.loseDevice(0, 46);
      const codes = await Promise.all(chains.map((chain) => codeOf(run(engine, chain))));
      expect(new Set(codes)).toEqual(new Set(['device-lost']));
      await engine.close();
    });
  });
});
