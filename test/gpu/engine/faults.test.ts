/** Driver calls that fail at the wrong moment, on the emulated driver. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CudaError, type Cuda } from '../../../src/gpu/driver/types.ts';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { GpuError, type RunResult } from '../../../src/gpu/types.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import type { Emulator } from '../../support/emulator.ts';
import { inHost } from '../../support/in-host.ts';
import { sequence } from '../../support/operator-cases/case.ts';
import { makeChain, planFor, wordsOf, type Chain } from './chains.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-faults-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const settings = { hostBytes: 2 ** 20, slabBytes: 2 ** 16, gpuBytes: 2 ** 18 };

function add(engine: Engine, name: string, layerWords: readonly number[] = [512, 300, 0, 1024, 64]): Chain {
  const chain = makeChain({ folder, name, layerWords });
  engine.addFunction(chain.key, chain.program.layout);
  return chain;
}

async function run(engine: Engine, chain: Chain): Promise<RunResult> {
  await inHost(engine, chain.key);
  const plan = planFor(chain, { mode: 'pipeswitch' });
  return await engine.run(chain.key, chain.program, [chain.input], { gpu: 0, plan });
}

/** What no engine may do, whatever failed: here as soon as it was seen, with the failure that led to it. */
function misorderedIn(emulator: Emulator): readonly string[] {
  const { races, unrecordedWaits } = emulator.report();
  return [...races, ...unrecordedWaits];
}

interface Fault {
  /** The driver's function, what it returns, and how often it works before. */
  readonly name: string;
  readonly status: number;
  readonly after: number;
}

async function codeOf(attempt: Promise<unknown>): Promise<string> {
  try {
    await attempt;
    return 'none';
  } catch (error) {
    return error instanceof GpuError ? error.code : String(error);
  }
}

/** Runs functions cold, warm and captured, evicts them and runs them again: all driver calls of a function's life. */
async function live(engine: Engine, chains: readonly [Chain, Chain]): Promise<string[]> {
  const [first, second] = chains;
  const codes: string[] = [];
  const attempt = async (work: () => Promise<unknown>): Promise<void> => {
    codes.push(await codeOf(work()));
  };
  const answer = (chain: Chain) => async (): Promise<void> => {
    expect(wordsOf((await run(engine, chain)).outputs)).toEqual(chain.expected);
  };
  for (const chain of [first, first, first]) await attempt(answer(chain));
  await attempt(() => engine.evict(first.key, 0));
  for (const chain of [second, first, first]) await attempt(answer(chain));
  return codes;
}

/** Makes the engine move layers together: evicts a function in the middle, and runs a larger one. */
async function moveLayers(engine: Engine): Promise<string[]> {
  const [small, kept, large] = [add(engine, 'small'), add(engine, 'kept'), add(engine, 'large', [3000])];
  const codes: string[] = [];
  const answer = async (chain: Chain): Promise<void> => {
    expect(wordsOf((await run(engine, chain)).outputs)).toEqual(chain.expected);
  };
  for (const chain of [small, kept]) codes.push(await codeOf(answer(chain)));
  codes.push(await codeOf(engine.evict(small.key, 0)));
  // It fits only after the other layers were moved together.
  for (const chain of [large, large, kept, large]) codes.push(await codeOf(answer(chain)));
  return codes;
}

describe.skipIf(emulatorMissing)('on the emulated driver', () => {
  it('opening the engine without enough device memory throws and frees everything', async () => {
    await withEmulatedCuda({ devices: 2 }, (cuda, emulator) => {
      emulator.failNext('cuMemAlloc_v2', 2, 1);
      const open = (): Engine => new Engine(cuda, settings);
      expect(open).toThrow(CudaError);
    });
  });

  it('if a second slab cannot be pinned, the first one becomes the budget', async () => {
    await withEmulatedCuda({}, async (cuda, emulator) => {
      const engine = new Engine(cuda, { ...settings, slabBytes: 8192 });
      const [first, second] = [add(engine, 'first'), add(engine, 'second')];
      expect(wordsOf((await run(engine, first)).outputs)).toEqual(first.expected);
      // The engine tries a second time, after it has freed the buffers of inputs and outputs.
      emulator.failNext('cuMemHostRegister_v2', 2);
      emulator.failNext('cuMemHostRegister_v2', 2);
      expect(wordsOf((await run(engine, second)).outputs)).toEqual(second.expected);
      expect(engine.hostTier('first').bytes).toBe(0);
      await engine.close();
    });
  });

  it('after a kernel failed, all calls are refused as poisoned, and the engine still closes', async () => {
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

  it('a lost device rejects all runs in flight as lost', async () => {
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

  it('after a capture failed to end, the stream is usable and runs are submitted launch by launch', async () => {
    await withEmulatedCuda({}, async (cuda, emulator) => {
      const engine = new Engine(cuda, settings);
      const chain = add(engine, 'chain');
      await run(engine, chain);
      await run(engine, chain);
      emulator.failNext('cuStreamEndCapture', 600);
      for (let warm = 0; warm < 3; warm++) {
        const { outputs, graph } = await run(engine, chain);
        expect([wordsOf(outputs), graph]).toEqual([chain.expected, false]);
      }
      await engine.close();
    });
  });

  it('a failed move drops the moved layers, and no answer is wrong', async () => {
    const copiesOf = async (gpuBytes: number): Promise<number> =>
      await withEmulatedCuda({}, async (cuda, emulator) => {
        const engine = new Engine(cuda, { ...settings, gpuBytes });
        emulator.forget();
        expect(new Set(await moveLayers(engine))).toEqual(new Set(['none']));
        const { calls } = emulator.report();
        await engine.close();
        return calls['cuMemcpyAsync']!;
      });
    const tight = 26 * 1024;
    const copies = await copiesOf(tight);
    expect(copies).toBeGreaterThan(await copiesOf(settings.gpuBytes));
    await withEmulatedCuda({ allow: ['leaks', 'freesInUse'] }, async (cuda, emulator) => {
      for (let after = 0; after < copies; after++) {
        const engine = new Engine(cuda, { ...settings, gpuBytes: tight });
        emulator.failNext('cuMemcpyAsync', 600, after);
        const codes = await moveLayers(engine);
        expect(codes.filter((code) => code !== 'none' && code !== 'misuse')).toEqual([]);
        await engine.close();
        expect(misorderedIn(emulator), `after copy ${after} failed`).toEqual([]);
      }
    });
  });

  it('after any driver call failed once, the engine serves on or reports that it is broken', async () => {
    const random = sequence(Number(process.env['TURNTABLE_SEED']));
    const calls = await withEmulatedCuda({}, async (cuda, emulator) => {
      const engine = new Engine(cuda, settings);
      emulator.forget();
      expect(new Set(await live(engine, [add(engine, 'first'), add(engine, 'second')]))).toEqual(new Set(['none']));
      const { calls: made } = emulator.report();
      await engine.close();
      return made;
    });
    const statuses = [2, 600, 700, 719, 999];
    const wrong: string[] = [];
    const provoke = async (cuda: Cuda, emulator: Emulator, { name, status, after }: Fault): Promise<void> => {
      const engine = new Engine(cuda, settings);
      const chains = [add(engine, 'first'), add(engine, 'second')] as const;
      emulator.failNext(name, status, after);
      // Twice, since the second time no program has to be loaded, and the failing call may come later.
      const codes = [...(await live(engine, chains)), ...(await live(engine, chains))];
      const untyped = codes.filter((code) => code.includes(' '));
      const later = await live(engine, chains);
      const expected = engine.broken === null ? 'none' : engine.broken.code;
      const isSettled = later.every((code) => code === expected);
      if (untyped.length > 0 || !isSettled) {
        wrong.push(`${name} ${status} after ${after}: ${codes.join(' ')}; then ${later.join(' ')}`);
      }
      await engine.close().catch(() => undefined);
      expect(misorderedIn(emulator), `after ${name} failed at ${after}`).toEqual([]);
    };
    const allow = ['leaks', 'faults', 'freesInUse'] as const;
    for (const [name, count] of Object.entries(calls)) {
      if (!name.startsWith('cu') || name.startsWith('cuGetError')) continue;
      // Calls on streams fail at every place: a missing copy, wait or fence would give a wrong answer.
      const isOfStreams = ['cuEventCreate', 'cuEventRecord', 'cuMemcpyAsync', 'cuStreamWaitEvent'].includes(name);
      if (isOfStreams) {
        // This status leaves the context usable, so one driver serves all engines: each new driver starts threads.
        await withEmulatedCuda({ allow }, async (cuda, emulator) => {
          for (let after = 0; after < count; after++) await provoke(cuda, emulator, { name, status: 600, after });
        });
        continue;
      }
      const fault = {
        name,
        status: statuses[Math.floor(random() * statuses.length)]!,
        after: Math.floor(random() * count),
      };
      await withEmulatedCuda({ allow }, async (cuda, emulator) => await provoke(cuda, emulator, fault));
    }
    expect(wrong).toEqual([]);
  });
});
