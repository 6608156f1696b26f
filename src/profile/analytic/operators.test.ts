import { describe, expect, test } from 'vitest';
import { loadMachine } from '../../hardware/index.ts';
import { unrolledNetwork } from '../../../test/support/unrolled-networks.ts';
import { estimateOperators } from './operators.ts';

const machine = loadMachine('p3.8xlarge');
const model = unrolledNetwork('lstm', { layers: 2, input: 32, hidden: 64, sequence: 4, batch: 8 });

describe('an estimate of operators', () => {
  test('an estimate of operators has a time for every node, and more for a recurrent cell than for moving its input', () => {
    const { gpuMs, bandwidth, latencyMs } = estimateOperators(model, machine, { dimensions: { batch: 8 } });
    expect(gpuMs.size).toBe(model.graph.node.length);
    const timesOf = (opType: string): number[] =>
      model.graph.node.filter((node) => node.opType === opType).map(({ name }) => gpuMs.get(name)!);
    expect(timesOf('LSTM')).toHaveLength(8);
    expect(Math.min(...timesOf('LSTM'))).toBeGreaterThan(Math.max(...timesOf('Split'), ...timesOf('Squeeze')));
    expect(bandwidth).toBe(machine.gpus[0]!.linkGBps);
    expect(latencyMs).toBeGreaterThan(0);
  });

  test('an estimate of operators needs a GPU', () => {
    expect(() => estimateOperators(model, loadMachine('cpu-16'))).toThrow("machine 'cpu-16' has no GPU 0 to estimate");
  });
});
