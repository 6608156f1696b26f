import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { anyLayers, machineOf } from '../../../test/support/layer-profiles.ts';
import { loadMachine, type Machine } from '../../hardware/index.ts';
import { planColdStart } from './plan.ts';
import { linkSpeeds, partitionByLoadedBytes, secondaryGpus } from './transmission.ts';
import { modeText } from './types.ts';

const layer = (bytes: number) => ({ name: 'x', kind: 'linear', bytes, load: bytes / 1e7, exec: 1, dha: 9 });

describe('secondary GPUs', () => {
  it('secondary GPUs of a p3.8xlarge are on the other switch, and differ for the GPUs of one switch', () => {
    const machine = loadMachine('p3.8xlarge');
    expect([0, 1, 2, 3].map((gpu) => secondaryGpus(machine, gpu))).toEqual([[2], [3], [0], [1]]);
  });

  it('secondary GPUs are never on the switch of the primary', () => {
    expect(secondaryGpus(machineOf([0, 0]), 0)).toEqual([]);
  });

  it('secondary GPUs must be joined to the primary by NVLink', () => {
    expect(
      secondaryGpus(
        machineOf([0, 1], () => false),
        0,
      ),
    ).toEqual([]);
    const onlyLast = machineOf([0, 0, 1, 1], (a, b) => a === 0 && b === 3);
    expect(secondaryGpus(onlyLast, 0)).toEqual([3]);
    expect(secondaryGpus(onlyLast, 3)).toEqual([0]);
    expect(secondaryGpus(onlyLast, 1)).toEqual([]);
  });

  it('secondary GPUs are one for each other switch', () => {
    expect(secondaryGpus(machineOf([0, 0, 1, 1, 2, 2, 3, 3]), 1)).toEqual([3, 5, 7]);
  });
});

describe('link speeds', () => {
  it('link speeds are bounded by the uplink of the switch', () => {
    const speeds = linkSpeeds(
      machineOf([0, 1], () => true, 4),
      0,
      [1],
    );
    expect(1e-6 / speeds.get(0)!.msPerByte).toBeCloseTo(4);
  });
});

describe('partitions', () => {
  it('partitions end before the layer that would exceed their share of the loaded bytes', () => {
    const layers = [100, 4, 3, 3, 6, 4].map(layer);
    // The first layer stays in host memory: 20 bytes are loaded, 10 each.
    expect(partitionByLoadedBytes(layers, (index) => index > 0, 2)).toEqual([undefined, 0, 0, 0, 1, 1]);
  });

  it('partitions leave a layer too large for its share to the last one', () => {
    expect(partitionByLoadedBytes([2, 90, 3].map(layer), () => true, 2)).toEqual([0, 1, 1]);
    expect(partitionByLoadedBytes([90, 3].map(layer), () => true, 3)).toEqual([2, 2]);
  });

  it('partitions are consecutive, and each but the last holds no more than its share', () => {
    fc.assert(
      fc.property(anyLayers, fc.integer({ min: 1, max: 4 }), (layers, count) => {
        const loaded = (index: number) => layers[index]!.bytes > 0;
        const partitions = partitionByLoadedBytes(layers, loaded, count);
        const given = partitions.filter((partition) => partition !== undefined);
        expect(given).toEqual(given.toSorted((a, b) => a - b));
        const total = layers.reduce((sum, { bytes }) => sum + bytes, 0);
        for (let partition = 0; partition < count - 1; partition++) {
          const bytes = layers.reduce(
            (sum, each, index) => sum + (partitions[index] === partition ? each.bytes : 0),
            0,
          );
          expect(bytes).toBeLessThanOrEqual(Math.floor(total / count));
        }
      }),
    );
  });
});

describe('a plan', () => {
  it('a plan refuses a GPU that the machine does not have, by name', () => {
    const profile = { layers: [layer(1)] };
    expect(() => planColdStart(profile, machineOf([0, 1]), 'dha', { primary: 2 })).toThrow(
      "machine 'test' has no GPU 2: it has GPUs 0 to 1",
    );
    expect(() => planColdStart(profile, loadMachine('cpu-16'), 'dha')).toThrow("machine 'cpu-16' has no GPU");
  });

  it('a plan without a helper is the plan for one link', () => {
    const layers = [layer(1e6), layer(1e6)];
    const alone = machineOf([0, 0]);
    for (const [parallel, single] of [
      ['pt', 'pipeswitch'],
      ['pt+dha', 'dha'],
      ['interleave', 'dha'],
    ] as const) {
      const plan = planColdStart({ layers }, alone, parallel);
      expect(plan.layers).toEqual(planColdStart({ layers }, alone, single).layers);
      expect(modeText(plan)).toBe(`${single}, 1 link: one PCIe switch`);
    }
  });

  it('a plan names the mode in effect, and why no other GPU helps', () => {
    const layers = [layer(1e6), layer(1e6)];
    const text = (machine: Machine): string => modeText(planColdStart({ layers }, machine, 'pt+dha'));
    const joined = machineOf([0, 1]);
    expect(text(joined)).toBe('pt+dha');
    expect(text({ ...joined, nvlinks: [] })).toBe('dha, 1 link: no NVLink found');
    expect(text(machineOf([0]))).toBe('dha, 1 link: one GPU');
    expect(modeText(planColdStart({ layers }, { ...joined, nvlinks: [] }, 'dha'))).toBe('dha');
  });

  it('a plan counts the bytes of the layers that it loads', () => {
    const layers = [{ ...layer(9e7), load: 9, dha: 1.2 }, layer(1e6)];
    expect(planColdStart({ layers }, machineOf([0]), 'dha').bytesGpu).toBe(1e6);
    expect(planColdStart({ layers }, machineOf([0]), 'pipeswitch').bytesGpu).toBe(9.1e7);
  });
});
