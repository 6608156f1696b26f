/**
 * Writes the plans in plans/ anew: `npm run plans`. Computed from the machine presets alone, so that the files are
 * always the same.
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
