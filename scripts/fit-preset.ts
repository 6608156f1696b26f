/**
 * Fits the arithmetic of a machine preset to what `bench -- gpu` measured: `tsx scripts/fit-preset.ts h200`. Prints the
 * constants and how far each model is off, those that were fitted and those that were held back.
 */
import { loadMachine, type Machine } from '../src/hardware/index.ts';
import {
  fittedModels,
  measuredLatencies,
  predictedLatencies,
  type Latencies,
} from '../test/support/measured-presets.ts';

const rounded = (value: number): number => Number(value.toPrecision(3));

/** What the search changes, each by a factor. Bandwidths of the link are measured, not fitted. */
const knobs: readonly ((machine: Machine, factor: number) => Machine)[] = [
  ...(['gemmTflops', 'batchedGemmTflops', 'convolutionShare', 'memoryGBps', 'kernelUs', 'copySetupUs'] as const).map(
    (name) => (machine: Machine, factor: number) => ({
      ...machine,
      gpus: machine.gpus.map((gpu) => ({ ...gpu, [name]: rounded(gpu[name] * factor) })),
    }),
  ),
  ...(['issueUs', 'launchUs', 'coldLaunchUs', 'operatorLaunchUs'] as const).map(
    (name) => (machine: Machine, factor: number) => ({
      ...machine,
      costs: { ...machine.costs!, [name]: rounded(machine.costs![name] * factor) },
    }),
  ),
];

const name = process.argv[2] ?? 'h200';
const measured = measuredLatencies();
const errorsOf = (machine: Machine, models: readonly string[]): number[] =>
  models.flatMap((model) => {
    const predicted = predictedLatencies(model, machine);
    return (Object.keys(predicted) as (keyof Latencies)[]).map((mode) =>
      Math.log(predicted[mode] / measured.get(model)![mode]),
    );
  });
const costOf = (machine: Machine): number =>
  errorsOf(machine, fittedModels).reduce(
    (sum, error) => sum + error ** 2 + 20 * Math.max(0, Math.abs(error) - 0.06) ** 2,
    0,
  );

let machine = loadMachine(name);
let cost = costOf(machine);
for (let step = 0.5; step > 0.01; step *= 0.8) {
  for (const knob of knobs) {
    for (const factor of [1 + step, 1 / (1 + step)]) {
      const changed = knob(machine, factor);
      const changedCost = costOf(changed);
      if (changedCost < cost) [machine, cost] = [changed, changedCost];
    }
  }
}
console.log(JSON.stringify({ gpu: machine.gpus[0], costs: machine.costs }, null, 2));
for (const model of measured.keys()) {
  const text = errorsOf(machine, [model]).map((error) => `${((Math.exp(error) - 1) * 100).toFixed(1)}%`);
  console.log(model, fittedModels.includes(model) ? 'fitted' : 'held back', text.join(' '));
}
