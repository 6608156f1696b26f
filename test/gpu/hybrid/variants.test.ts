/**
 * Small versions of the thirteen networks of the Chrion paper's Table 6, under the plans of every alpha, against ONNX
 * Runtime.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { compileHybrid } from '../../../src/gpu/hybrid/compile.ts';
import { CpuCores } from '../../../src/gpu/hybrid/cpu-cores.ts';
import { openHybrid } from '../../../src/gpu/hybrid/open.ts';
import { draftOperators } from '../../../src/gpu/hybrid/operator-draft.ts';
import { graphProfileOf } from '../../../src/gpu/hybrid/operator-profile.ts';
import { livingNodes } from '../../../src/gpu/program/prepared.ts';
import type { HybridPlan } from '../../../src/gpu/hybrid/types.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { defaultSettings } from '../../../src/gpu/program/index.ts';
import type { PreparedGraph } from '../../../src/gpu/program/prepared.ts';
import { type ChrionPlan } from '../../../src/plan/index.ts';
import { hybridPlanOf, planChrion, planVariants, planMemoryOptimal } from '../../../src/plan/chrion/index.ts';
import type { GraphProfile } from '../../../src/profile/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { relativeError } from '../../support/run-program.ts';
import { architecture, exampleOf, loading, noise } from './examples.ts';
import { lstmCells } from '../../support/lstm-cells.ts';

interface Variant {
  readonly name: string;
  readonly layers: number;
  readonly batch: number;
  readonly ioSize: number;
  readonly sequence: number;
}

const base = { layers: 3, batch: 2, ioSize: 8, sequence: 6 };
/** The table's middle, and the ends of its columns. */
const variants: readonly Variant[] = [
  { name: 'base', ...base },
  { name: 'L4', ...base, layers: 1 },
  { name: 'L16', ...base, layers: 4 },
  { name: 'b1', ...base, batch: 1 },
  { name: 'b16', ...base, batch: 8 },
  { name: 'io128', ...base, ioSize: 16 },
  { name: 's32', ...base, sequence: 2 },
  { name: 's128', ...base, sequence: 8 },
];
const alphas = [0, 0.1, 0.3, 1, 10, 1000];
const coreCount = 3;

let folder: string;
let cores: CpuCores;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-variants-'));
  cores = new CpuCores({ count: coreCount });
});
afterAll(async () => {
  await cores.close();
  await rm(folder, { recursive: true, force: true });
});

/** The paper's times for the operators of this graph: cells as in the paper, everything else takes next to nothing. */
async function fitted(prepared: PreparedGraph, shape: Variant): Promise<GraphProfile> {
  const draft = await draftOperators(prepared, {
    operators,
    settings: defaultSettings,
    cacheFolder: folder,
  });
  const { nodes, bandwidth, latency } = lstmCells(shape, coreCount);
  const cell = nodes[0]!;
  const isCell = new Set(livingNodes(prepared).flatMap(({ name, proto }) => (proto.opType === 'LSTM' ? [name] : [])));
  const drafted = draft.operators.flatMap(({ nodes: members }) => members);
  return graphProfileOf(draft, {
    gpuMs: new Map(drafted.map(({ name, label }) => [label, isCell.has(name) ? cell.gpu! : 0.001])),
    cpuMs: new Map(drafted.map(({ name }) => [name, isCell.has(name) ? cell.cpu : cell.cpu.map(() => 0.001)])),
    bandwidth,
    latencyMs: latency,
    callMs: 0.005,
  });
}

/** The paper's memory model, where every operator has its own memory, and the engine's, where all share one arena. */
function plansOf(profile: GraphProfile): ReadonlyMap<string, HybridPlan> {
  const plans: ChrionPlan[] = [];
  for (const activations of ['own', 'shared'] as const) {
    const form: GraphProfile = { ...profile, activations };
    plans.push(...alphas.map((alpha) => planChrion(form, { alpha })), planChrion(form, { alpha: 0 }));
    plans.push(...[planMemoryOptimal(form)].flatMap((plan) => plan ?? []), ...planVariants(form));
  }
  const distinct = new Map<string, HybridPlan>();
  for (const plan of plans) {
    const { order, segments } = hybridPlanOf(plan, '');
    const key = JSON.stringify([order, segments]);
    if (!distinct.has(key)) distinct.set(key, { id: `plan-${distinct.size}`, order, segments });
  }
  return distinct;
}

describe.skipIf(emulatorMissing)("Table 6's networks in small", () => {
  it("Table 6's networks in small give the outputs of ONNX Runtime under the plans of every alpha, and take the bytes that the plans promise", async () => {
    const seen: Record<string, number> = {};
    await withEmulatedCuda({ devices: 1, seed: 6 }, async (cuda) => {
      const engine = new Engine(cuda, { hostBytes: 2 ** 24, slabBytes: 2 ** 20, gpuBytes: 2 ** 23 });
      for (const variant of variants) {
        const { name, layers, batch, ioSize, sequence } = variant;
        const model = architecture('lstm', { layers, input: ioSize, hidden: ioSize, sequence });
        const inputs = [noise('input', [batch, sequence, ioSize], batch)];
        const { prepared, expected } = await exampleOf(folder, name, model, inputs, sequence);
        const plans = plansOf(await fitted(prepared, variant));
        for (const plan of plans.values()) {
          const hybrid = await compileHybrid(prepared, plan, operators, defaultSettings, join(folder, 'cache'));
          engine.addFunction(name, hybrid.layout);
          await engine.stage(name);
          const free = engine.memory()[0]!;
          const open = await openHybrid(engine, name, hybrid, cores);
          const { outputs } = await open.run(inputs, {
            gpu: 0,
            plan: loading(prepared.base.layers, hybrid.promise.layers),
          });
          for (const [index, output] of outputs.entries()) {
            expect(relativeError(output, expected[index]!)).toBeLessThan(1e-4);
          }
          const taken = engine.memory()[0]!;
          expect(taken.weightBytes).toBe(hybrid.promise.weightBytes);
          const { constants, arenaBytes } = hybrid.program ?? { constants: new Uint8Array(), arenaBytes: 0 };
          expect(taken.constantBytes - free.constantBytes).toBe(Math.ceil(constants.byteLength / 256) * 256);
          expect(taken.scratchBytes).toBeGreaterThanOrEqual(arenaBytes);
          await open.close();
          await engine.removeFunction(name);
        }
        seen[name] = plans.size;
      }
      await engine.close();
    });
    // With only one plan each, the test would show nothing.
    expect(Object.values(seen).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(3 * variants.length);
  });
});
