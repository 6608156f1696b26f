/** What was measured on a GPU of a preset's kind (`bench/results/gpu.json`) beside what the preset predicts. */
import type { Machine } from '../../src/hardware/index.ts';
import { planColdStart, simulate, type ColdStartMode } from '../../src/plan/index.ts';
import { estimateLayers, namedModel } from '../../src/profile/index.ts';
import gpu from '../../bench/results/gpu.json' with { type: 'json' };

/** Milliseconds. Modes of several links are left out: the measured machine has one GPU. */
export interface Latencies {
  readonly warm: number;
  readonly pipeswitch: number;
  readonly dha: number;
}

/** The others are held back. */
export const fittedModels: readonly string[] = ['bert-base', 'bert-large', 'gpt2', 'resnet50'];

/** By model. */
export function measuredLatencies(): ReadonlyMap<string, Latencies> {
  const { columns, rows } = gpu.tables[0]!;
  const at = (row: readonly string[], title: string): number => Number(row[columns.indexOf(`>${title}`)]);
  return new Map(
    rows.map((row) => [row[0]!, { warm: at(row, 'warm'), pipeswitch: at(row, 'pipeswitch'), dha: at(row, 'dha') }]),
  );
}

export function predictedLatencies(name: string, machine: Machine): Latencies {
  const { model, dimensions } = namedModel(name);
  const { profile } = estimateLayers(model, machine, { dimensions });
  const cold = (mode: ColdStartMode): number =>
    simulate(profile, machine, planColdStart(profile, machine, mode)).latencyMs;
  const plan = planColdStart(profile, machine, 'pipeswitch');
  return {
    warm: simulate(profile, machine, plan, { resident: () => true }).latencyMs,
    pipeswitch: cold('pipeswitch'),
    dha: cold('dha'),
  };
}
