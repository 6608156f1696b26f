/** Presets of GPUs that this project has measured agree with what was measured. */
import { describe, expect, test } from 'vitest';
import { loadMachine } from '../../src/hardware/index.ts';
import gpu from '../../bench/results/gpu.json' with { type: 'json' };
import serve from '../../bench/results/serve.json' with { type: 'json' };
import { fittedModels, measuredLatencies, predictedLatencies, type Latencies } from '../support/measured-presets.ts';

const h200 = loadMachine('h200');
const measured = measuredLatencies();

describe('the preset h200', () => {
  test('the preset h200 is of the GPU that was measured, and says that it was fitted to it', () => {
    expect(h200.gpus.map(({ model }) => model)).toEqual(gpu.machine.gpus);
    expect(h200.gpus[0]!.linkGBps).toBe(gpu.settings.linkGBps);
    expect(h200.source).toContain('fitted');
    expect([...measured.keys()].filter((name) => !fittedModels.includes(name))).toEqual(['roberta-base', 'resnet101']);
  });

  test.each([...measured.keys()])('takes as long as measured for %s, within 10%', (name) => {
    const predicted = predictedLatencies(name, h200);
    for (const mode of Object.keys(predicted) as (keyof Latencies)[]) {
      expect(Math.abs(predicted[mode] / measured.get(name)![mode] - 1), mode).toBeLessThan(0.1);
    }
  });

  test('the preset h200 takes as long as starts under load were measured to take, within 10%', () => {
    expect(serve.machine.gpus).toEqual(gpu.machine.gpus);
    const table = serve.tables.find(({ columns }) => columns.includes('SYSTEM'))!;
    const { warm, pipeswitch, dha } = predictedLatencies('bert-base', h200);
    const cold = new Map(Object.entries({ pipeswitch, dha }));
    const rows = table.rows.filter(([system = '']) => cold.has(system));
    expect(rows).toHaveLength(2);
    for (const [system = '', warmMs, , coldMs] of rows) {
      expect(Math.abs(warm / Number(warmMs) - 1)).toBeLessThan(0.1);
      expect(Math.abs(cold.get(system)! / Number(coldMs) - 1)).toBeLessThan(0.1);
    }
  });
});
