import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { loadMachine, MachineError, machinePresets, parseMachine, probeMachine } from './index.ts';

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'turntable-machine-'));
});

afterEach(() => {
  rmSync(root, { recursive: true, force: true });
});

function write(path: string, text: string): string {
  const file = join(root, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
}

function writeGpu(busId: string, model: string, chain: string): void {
  write(`proc/driver/nvidia/gpus/${busId}/information`, `Model: \t\t ${model}\nGPU UUID: \t GPU-1\n`);
  write(`sys/devices/${chain}/${busId}/max_link_speed`, '16.0 GT/s PCIe\n');
  write(`sys/devices/${chain}/${busId}/max_link_width`, '16\n');
  write(
    `sys/devices/${chain}/${busId}/resource`,
    '0x90000000 0x90ffffff 0x40200\n0x4000000000 0x47ffffffff 0x14220c\n',
  );
  mkdirSync(join(root, 'sys/bus/pci/devices'), { recursive: true });
  symlinkSync(join(root, `sys/devices/${chain}/${busId}`), join(root, `sys/bus/pci/devices/${busId}`));
}

const port = (number: number): string => `0000:0${number}:00.0`;

describe('machine presets', () => {
  test('are the four that are documented, each under its own name', () => {
    expect(machinePresets()).toEqual(['a5000x2', 'cpu-16', 'h100x8', 'h200', 'p3.8xlarge']);
    for (const name of machinePresets()) expect(loadMachine(name).name).toBe(name);
  });

  test('of the paper: a V100 keeps 10,528 MiB for weights, and GPUs 0 and 1 share a switch', () => {
    const { gpus } = loadMachine('p3.8xlarge');
    expect(gpus.map((gpu) => (gpu.memoryBytes - gpu.reserveBytes) / 2 ** 20)).toEqual([10528, 10528, 10528, 10528]);
    expect(gpus.map((gpu) => gpu.switch)).toEqual([0, 0, 1, 1]);
  });

  test('say which of them were never measured', () => {
    for (const name of ['p3.8xlarge', 'a5000x2', 'h100x8']) expect(loadMachine(name).source).toMatch(/not measured/);
    expect(loadMachine('h200').source).toMatch(/fitted to what this project measured/);
  });
});

describe('a machine file', () => {
  const preset = loadMachine('p3.8xlarge');

  test('is read by its path', () => {
    expect(loadMachine(write('mine.json', JSON.stringify({ ...preset, name: 'mine' }))).name).toBe('mine');
  });

  const gpu = preset.gpus[0]!;
  test.each([
    [{ ...preset, gpus: [{ ...gpu, linkGBps: 0 }] }, "field 'gpus[0].linkGBps' of the machine is 0"],
    [{ ...preset, gpus: [{ ...gpu, linkSpeed: 1 }] }, "the machine has an unknown field 'gpus[0].linkSpeed'"],
    [{ ...preset, gpus: [gpu, { ...gpu, switch: 2 }] }, "field 'gpus[1].switch' of the machine is 2, but there are 2"],
    [{ ...preset, gpus: [{ ...gpu, reserveBytes: 1e12 }] }, "field 'gpus[0].reserveBytes' of the machine"],
    [
      { ...preset, nvlinks: [{ gpus: [0, 4], linkGBps: 1, copySetupUs: 1 }] },
      "field 'nvlinks[0].gpus' of the machine is [0,4]",
    ],
    [{ ...preset, nvlinks: [{ gpus: [1, 1], linkGBps: 1, copySetupUs: 1 }] }, 'a link joins two GPUs'],
    [{ ...preset, nvlinks: [...preset.nvlinks, { gpus: [1, 0], linkGBps: 1, copySetupUs: 1 }] }, 'listed already'],
    [{ ...preset, costs: undefined }, "the machine has GPUs but no field 'costs'"],
    [{ ...preset, memoryBytes: undefined }, "the machine has no field 'memoryBytes'"],
    [
      { ...preset, hostMemory: { pinnedBytes: 3e11, bandwidthGBps: 60 } },
      "field 'hostMemory.pinnedBytes' of the machine is 300000000000, but the machine has 261993005056 bytes",
    ],
    [{ ...preset, disk: { readGBps: 1 } }, "the machine has no field 'disk.capacityBytes'"],
    [[], 'the machine is a list of 0, but must be an object with name'],
  ])('is refused with its field named: %#', (json, message) => {
    const parsed: unknown = JSON.parse(JSON.stringify(json));
    expect(() => parseMachine(parsed)).toThrow(MachineError);
    expect(() => parseMachine(parsed)).toThrow(message);
  });

  test('that is missing, not JSON, or no preset is refused by name', () => {
    expect(() => loadMachine(join(root, 'none.json'))).toThrow(/none\.json cannot be read: ENOENT/);
    expect(() => loadMachine(write('broken.json', '{'))).toThrow(/broken\.json is not JSON/);
    expect(() => loadMachine('abacus')).toThrow("there is no machine 'abacus'; there are a5000x2");
  });
});

describe('the probe', () => {
  test('finds GPUs that share a switch, their links and their memory', () => {
    write('sys/devices/system/cpu/online', '0-7\n');
    writeGpu('0000:11:00.0', 'NVIDIA RTX A5000', `pci0000:00/0000:00:01.0/${port(1)}/0000:02:00.0`);
    writeGpu('0000:12:00.0', 'NVIDIA RTX A5000', `pci0000:00/0000:00:01.0/${port(1)}/0000:02:01.0`);
    writeGpu('0000:21:00.0', 'NVIDIA RTX A5000', `pci0000:00/0000:00:02.0/${port(4)}/0000:05:00.0`);
    const machine = probeMachine(root);
    expect(machine.gpus.map((gpu) => gpu.switch)).toEqual([0, 0, 1]);
    expect(machine.gpus[0]).toMatchObject({ model: 'NVIDIA RTX A5000', memoryBytes: 2 ** 35, multiprocessors: 64 });
    // 16 lanes of 16 GT/s carry 31.5 GB/s, of which copies reach about 26.
    expect(machine.gpus[0]!.linkGBps).toBeCloseTo(25.8, 1);
    expect(machine.source).toContain('estimated as those of preset a5000x2');
    expect(parseMachine(JSON.parse(JSON.stringify(machine)))).toEqual(machine);
  });

  test('finds only cores if there is no GPU', () => {
    write('sys/devices/system/cpu/online', '0-3\n');
    const machine = probeMachine(root);
    expect(machine).toMatchObject({ sockets: [{ cores: 4 }], gpus: [], nvlinks: [] });
    expect(parseMachine(JSON.parse(JSON.stringify(machine)))).toEqual(machine);
  });

  test('describes this machine in the same form', () => {
    const machine = probeMachine();
    expect(parseMachine(JSON.parse(JSON.stringify(machine)))).toEqual(machine);
  });
});
