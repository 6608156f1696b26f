import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { Engine, type EngineOptions } from '../../../src/gpu/engine/engine.ts';
import type { RunResult } from '../../../src/gpu/types.ts';
import type { sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { inHost } from '../../support/in-host.ts';
import { makeChain, planFor, wordsOf, type Chain, type ChainOptions, type PlanShape } from './chains.ts';
import { ModelCuda } from './model-cuda.ts';
import type { ModelCudaOptions } from './model-streams.ts';

export const layerWords = [512, 0, 300, 1024, 64, 700, 0, 900, 128];

export interface Bench {
  readonly engine: Engine;
  /** Makes a chain and adds it to the engine. */
  readonly add: (options?: Partial<ChainOptions>) => Chain;
  /** Has it in host memory, runs it and checks its answer. */
  readonly run: (
    chain: Chain,
    shape?: Partial<PlanShape>,
    extra?: { trace?: boolean; lends?: boolean; signal?: AbortSignal },
  ) => Promise<RunResult>;
}

export interface ModelBench extends Bench {
  readonly cuda: ModelCuda;
}

export type BenchOptions = Partial<ModelCudaOptions & EngineOptions>;

const engineDefaults = { hostBytes: 2 ** 20, slabBytes: 64 * 1024, gpuBytes: 256 * 1024 };

/** As {@link onEngine}, on an emulated machine, where kernels are compiled C. */
export async function onEmulatedEngine(
  use: ReturnType<typeof sharedEmulatedCuda>,
  options: Partial<EngineOptions>,
  test: (bench: Bench) => Promise<void>,
): Promise<void> {
  await use((cuda) => withBench(new Engine(cuda, { ...engineDefaults, ...options }), test));
}

async function withBench(engine: Engine, test: (bench: Bench) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'turntable-engine-'));
  let chains = 0;
  try {
    await test({
      engine,
      add: (chain = {}) => {
        const made = makeChain({ folder, name: `chain${chains++}`, layerWords, ...chain });
        engine.addFunction(made.key, made.program.layout);
        return made;
      },
      run: async (chain, shape = {}, extra = {}) => {
        const plan = planFor(chain, { mode: 'pipeswitch', ...shape });
        const { filledBytes } = engine.hostTier(chain.key);
        if (filledBytes < chain.program.layout.bytes) await inHost(engine, chain.key);
        const result = await engine.run(chain.key, chain.program, [chain.input], { gpu: plan.primary, plan, ...extra });
        expect(wordsOf(result.outputs)).toEqual(chain.expected);
        return result;
      },
    });
    await engine.close();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs a test with an engine on the model driver. At the end there must be no race, and everything must be freed. */
export async function onEngine(options: BenchOptions, test: (bench: ModelBench) => Promise<void>): Promise<void> {
  const cuda = new ModelCuda({ devices: 1, deviceBytes: 2 ** 20, ...options });
  await withBench(new Engine(cuda, { ...engineDefaults, ...options }), (bench) => test({ cuda, ...bench }));
  expect(cuda.races).toEqual([]);
  if (cuda.broken !== null) return;
  expect(cuda.devices.map(({ declared }) => declared.size)).toEqual(cuda.devices.map(() => 0));
  expect(Object.entries(cuda.counts()).filter(([, count]) => count !== 0)).toEqual([]);
}
