import { cpus } from 'node:os';
import { describe, expect, test } from 'vitest';
import { madeUpRoot } from '../../test/support/made-up-root.ts';
import { parseKernelList } from '../tools/index.ts';
import { findLibrary, readCores, readGpuDriver, readMemory, readQuotaPeriods } from './index.ts';

const made = madeUpRoot();
const { write } = made;

/** Two sockets of four cores with two threads each: CPU n is thread n / 8 of core n % 4 on socket n / 4 % 2. */
function writeTwoSockets(): void {
  write({
    'sys/devices/system/cpu/online': '0-15\n',
    'proc/self/status': 'Name:\tnode\nCpus_allowed_list:\t0-63\n',
    'proc/cpuinfo': 'processor\t: 0\nmodel name\t: Imagined CPU @ 2 GHz\n',
    'sys/devices/system/node/node0/cpulist': '0-3\n',
    'sys/devices/system/node/node1/cpulist': '4-7\n',
    'sys/devices/system/node/online': '0-1\n',
  });
  for (let id = 0; id < 16; id++) {
    const topology = `sys/devices/system/cpu/cpu${id}/topology`;
    write({
      [`${topology}/core_id`]: `${id % 4}\n`,
      [`${topology}/physical_package_id`]: `${Math.floor(id / 4) % 2}\n`,
    });
  }
}

describe('cores', () => {
  test('hardware threads of one core count once, and equal core numbers on two sockets twice', () => {
    writeTwoSockets();
    expect(readCores(made.path)).toEqual({
      model: 'Imagined CPU @ 2 GHz',
      logical: 16,
      physical: 8,
      sockets: 2,
      numaNodes: 2,
      allowed: 16,
      quota: undefined,
      usable: 16,
    });
  });

  test('CPU affinity reduces the usable cores', () => {
    writeTwoSockets();
    write({ 'proc/self/status': 'Cpus_allowed_list:\t1,4-5\n' });
    expect(readCores(made.path)).toMatchObject({ logical: 16, allowed: 3, usable: 3 });
  });

  test.each([
    ['250000 100000', 2.5, 2],
    ['50000 100000', 0.5, 1],
    ['max 100000', undefined, 16],
  ])('a control group (version 2) with cpu.max "%s" leaves the quota %s', (text, quota, usable) => {
    writeTwoSockets();
    write({ 'proc/self/cgroup': '0::/pod/container\n', 'sys/fs/cgroup/pod/container/cpu.max': `${text}\n` });
    expect(readCores(made.path)).toMatchObject({ quota, usable });
  });

  test('the tightest of nested control groups applies', () => {
    writeTwoSockets();
    write({
      'proc/self/cgroup': '0::/pod/container\n',
      'sys/fs/cgroup/pod/container/cpu.max': '800000 100000\n',
      'sys/fs/cgroup/pod/cpu.max': '300000 100000\n',
      'sys/fs/cgroup/cpu.max': 'max 100000\n',
    });
    expect(readCores(made.path)).toMatchObject({ quota: 3, usable: 3 });
  });

  // The quota's folder has the name of the mount, which is that of the first controller or of all that share it.
  test.each([
    ['cpu', 'cpu'],
    ['cpu,cpuacct', 'cpu'],
    ['cpu,cpuacct', 'cpu,cpuacct'],
    ['cpuacct,cpu', 'cpuacct,cpu'],
  ])('a version 1 control group of the controllers %s is read at the mount %s', (controllers, mount) => {
    writeTwoSockets();
    write({
      'proc/self/cgroup': `4:memory:/box\n3:${controllers}:/box\n`,
      [`sys/fs/cgroup/${mount}/box/cpu.cfs_quota_us`]: '400000\n',
      [`sys/fs/cgroup/${mount}/box/cpu.cfs_period_us`]: '100000\n',
      [`sys/fs/cgroup/${mount}/cpu.cfs_quota_us`]: '-1\n',
    });
    expect(readCores(made.path)).toMatchObject({ quota: 4, usable: 4 });
  });

  test('the periods in which a quota was used up are those of the group that was stopped most, and none without a quota', () => {
    write({
      'proc/self/cgroup': '0::/pod/container\n',
      'sys/fs/cgroup/pod/container/cpu.stat': 'usage_usec 9\nnr_periods 40\nnr_throttled 3\nthrottled_usec 5\n',
      'sys/fs/cgroup/pod/cpu.stat': 'usage_usec 9\nnr_periods 70\nnr_throttled 30\nthrottled_usec 5\n',
      'sys/fs/cgroup/cpu.stat': 'usage_usec 9\n',
    });
    expect(readQuotaPeriods(made.path)).toEqual({ all: 70, stopped: 30 });
    write({ 'proc/self/cgroup': '0::/other\n', 'sys/fs/cgroup/other/cpu.stat': 'usage_usec 9\nnr_periods 0\n' });
    expect(readQuotaPeriods(made.path)).toBeUndefined();
  });

  test('without /proc and /sys the numbers of the operating system are used', () => {
    expect(readCores(made.path).logical).toBe(cpus().length);
    expect(readCores(made.path).usable).toBeGreaterThanOrEqual(1);
  });

  test('this machine is read without a contradiction', () => {
    const cores = readCores();
    expect(cores.physical).toBeLessThanOrEqual(cores.logical);
    expect(cores.usable).toBeLessThanOrEqual(cores.allowed);
  });
});

test('a kernel list names single numbers and ranges', () => {
  expect(parseKernelList('0-2,5,8-9')).toEqual([0, 1, 2, 5, 8, 9]);
  expect(parseKernelList('')).toEqual([]);
});

describe('memory', () => {
  const meminfo = 'MemTotal:       16000 kB\nMemFree:        1 kB\nMemAvailable:    9000 kB\n';

  test("without a limit all of the machine's memory counts", () => {
    write({ 'proc/meminfo': meminfo });
    expect(readMemory(made.path)).toEqual({
      totalBytes: 16_384_000,
      availableBytes: 9_216_000,
      limitBytes: undefined,
      limitUsedBytes: undefined,
      ownBytes: 16_384_000,
      usableBytes: 9_216_000,
    });
  });

  test.each([
    ['2', '0::/box', 'sys/fs/cgroup/box/memory.max', 'sys/fs/cgroup/box/memory.current'],
    [
      '1',
      '9:memory:/box',
      'sys/fs/cgroup/memory/box/memory.limit_in_bytes',
      'sys/fs/cgroup/memory/box/memory.usage_in_bytes',
    ],
  ])('a control group (version %s) leaves its limit less what it holds', (_version, line, limit, used) => {
    write({ 'proc/meminfo': meminfo, 'proc/self/cgroup': line, [limit]: '4000000\n', [used]: '1500000\n' });
    expect(readMemory(made.path)).toMatchObject({
      limitBytes: 4_000_000,
      limitUsedBytes: 1_500_000,
      usableBytes: 2_500_000,
    });
  });

  test.each([
    ['0::/box', 'sys/fs/cgroup/box/memory.max'],
    ['9:memory:/box', 'sys/fs/cgroup/memory/box/memory.limit_in_bytes'],
  ])('a control group that does not say what it holds counts as empty (%s)', (line, limit) => {
    write({ 'proc/meminfo': meminfo, 'proc/self/cgroup': line, [limit]: '4000000\n' });
    expect(readMemory(made.path)).toMatchObject({ limitBytes: 4_000_000, limitUsedBytes: 0, usableBytes: 4_000_000 });
  });

  test('the huge number that version 1 writes for no limit is read as no limit', () => {
    write({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '9:memory:/',
      'sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
    });
    expect(readMemory(made.path).limitBytes).toBeUndefined();
  });
});

describe('GPU driver and libraries', () => {
  test('a machine without a driver has none of its parts', () => {
    expect(readGpuDriver({ root: made.path })).toEqual({ library: undefined, version: undefined, gpus: [] });
  });

  test('driver version, library and each GPU are read from /proc and the linker folders', () => {
    write({
      'proc/driver/nvidia/version':
        'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n',
      'proc/driver/nvidia/gpus/0000:17:00.0/information': 'Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-1234\n',
      'proc/driver/nvidia/gpus/0000:65:00.0/information': 'Model: \t\t NVIDIA A100\n',
      'usr/lib/x86_64-linux-gnu/libcuda.so.1': '',
    });
    expect(readGpuDriver({ root: made.path })).toEqual({
      library: '/usr/lib/x86_64-linux-gnu/libcuda.so.1',
      version: '550.54.15',
      gpus: [
        { model: 'NVIDIA A100', busId: '0000:17:00.0', uuid: 'GPU-1234' },
        { model: 'NVIDIA A100', busId: '0000:65:00.0', uuid: undefined },
      ],
    });
  });

  test('the version is also found in the line format of the open kernel module', () => {
    write({
      'proc/driver/nvidia/version':
        'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs-builder@U16)\n',
    });
    expect(readGpuDriver({ root: made.path }).version).toBe('570.86.10');
  });

  test('a library is searched in LD_LIBRARY_PATH, then in the folders of the linker and of CUDA, in any version', () => {
    write({
      'usr/local/cuda-12.4/targets/x86_64-linux/lib/libnvrtc.so.12': '',
      'etc/ld.so.conf.d/vendor.conf': '# a comment\n/opt/vendor/lib\n',
      'opt/vendor/lib/libcublasLt.so.12.4.5': '',
      'opt/mine/libcublasLt.so.12': '',
    });
    expect(findLibrary('libnvrtc.so', { root: made.path })).toBe(
      '/usr/local/cuda-12.4/targets/x86_64-linux/lib/libnvrtc.so.12',
    );
    expect(findLibrary('libcublasLt.so', { root: made.path })).toBe('/opt/vendor/lib/libcublasLt.so.12.4.5');
    expect(findLibrary('libcublasLt.so', { root: made.path, libraryPath: '/opt/mine' })).toBe(
      '/opt/mine/libcublasLt.so.12',
    );
    expect(findLibrary('libcudnn.so', { root: made.path })).toBeUndefined();
  });
});
