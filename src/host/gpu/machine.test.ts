import { expect, test } from 'vitest';
import type { GpuProcessInfo, MeasuredTopology } from '../../gpu/index.ts';
import { parseTopology } from '../../hardware/index.ts';
import { machineOf } from './machine.ts';

const info = {
  devices: [0, 1].map((index) => ({ index, name: 'GPU', limitBytes: 16e9, multiprocessors: 80 })),
} as unknown as GpuProcessInfo;

/** Two GPUs of 12.2 GB/s for which the system reports no common switch. */
function measured(loadTogetherGBps: number, helped: number): MeasuredTopology {
  const gpu = { name: 'GPU', pciBusId: '', numaNode: null, link: null, loadGBps: 12.2, storeGBps: 12 };
  return {
    gpus: [
      { ...gpu, index: 0, switch: 0 },
      { ...gpu, index: 1, switch: 1 },
    ],
    pairs: [{ gpus: [0, 1], loadTogetherGBps, peerGBps: [22, 22], helpedGBps: [helped, helped] }],
    allAtOnceGBps: null,
    copyBytes: 1,
  };
}

test('two GPUs behind a hidden switch share it in the plans, and do not help each other', () => {
  const machine = machineOf(info, measured(12.2, 12.3));
  expect(machine.gpus.map((gpu) => gpu.switch)).toEqual([0, 0]);
  expect(machine.switches).toEqual([{ uplinkGBps: 12.2 }]);
  expect(machine.nvlinks).toEqual([]);
});

test('two GPUs with separate links and an NVLink that was measured to help load in parallel', () => {
  const machine = machineOf(info, measured(24.2, 23.8));
  expect(machine.gpus.map((gpu) => gpu.switch)).toEqual([0, 1]);
  expect(machine.nvlinks).toMatchObject([{ gpus: [0, 1], linkGBps: 22 }]);
});

test('settings override measurements', () => {
  const machine = machineOf(info, measured(24.2, 23.8), parseTopology('0+1'));
  expect(machine.gpus.map((gpu) => gpu.switch)).toEqual([0, 0]);
  expect(machine.nvlinks).toEqual([]);
});
