/**
 * Writes the plans in plans/ again: `npm run plans`. Computed only from the machine presets, so the files never vary.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { formatShippedPlan, shippedMachines, shippedModels, shippedPlanOf } from './shipped-plans.ts';

const folder = join(import.meta.dirname, '../plans');
for (const machine of shippedMachines) {
  mkdirSync(join(folder, machine), { recursive: true });
  for (const model of shippedModels) {
    writeFileSync(join(folder, machine, `${model}.json`), formatShippedPlan(shippedPlanOf(model, machine)));
  }
}
