import { rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { madeUpRoot } from '../../test/support/made-up-root.ts';
import {
  divideMemory,
  divisionText,
  inFlightBytes,
  readDescriptors,
  readMemory,
  processesShort,
  readProcesses,
  sessionsThatFit,
  shrunkBytes,
  validatorLimitBytes,
} from './index.ts';

const made = madeUpRoot();
const { write } = made;

const meminfo = 'MemTotal:       16000000 kB\nMemFree:        1 kB\nMemAvailable:    9000000 kB\n';
const version1 = 'sys/fs/cgroup/memory';
const version2 = 'sys/fs/cgroup';

describe('used memory of a control group', () => {
  test('files that are only cached are free (version 2)', () => {
    write({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '0::/box',
      [`${version2}/box/memory.max`]: '700000000\n',
      [`${version2}/box/memory.current`]: '625000000\n',
      [`${version2}/box/memory.stat`]:
        'anon 60000000\nfile 525000000\nkernel 9000000\nshmem 1000000\nfile_mapped 2000000\nslab_reclaimable 4000000\n',
    });
    expect(readMemory(made.path)).toMatchObject({
      limitBytes: 700_000_000,
      ownBytes: 700_000_000,
      limitUsedBytes: 68_000_000,
      usableBytes: 632_000_000,
    });
  });

  test('older kernels list their own memory in parts (version 2)', () => {
    write({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '0::/',
      [`${version2}/memory.max`]: '700000000\n',
      [`${version2}/memory.current`]: '300000000\n',
      [`${version2}/memory.stat`]:
        'anon 60000000\nfile 200000000\nkernel_stack 1000000\npagetables 2000000\nslab_unreclaimable 3000000\n',
    });
    expect(readMemory(made.path).limitUsedBytes).toBe(66_000_000);
  });

  test('files that are only cached are free (version 1), and groups below count', () => {
    write({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '9:memory:/box',
      [`${version1}/box/memory.limit_in_bytes`]: '734003200\n',
      [`${version1}/box/memory.usage_in_bytes`]: '552000000\n',
      [`${version1}/box/memory.kmem.usage_in_bytes`]: '5000000\n',
      [`${version1}/box/memory.stat`]:
        'cache 525000000\nrss 0\nmapped_file 0\ntotal_cache 525000000\ntotal_rss 20000000\ntotal_mapped_file 2000000\n',
    });
    expect(readMemory(made.path)).toMatchObject({ limitUsedBytes: 27_000_000, usableBytes: 707_003_200 });
  });

  test('no sum of parts is more than the group holds', () => {
    write({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '0::/',
      [`${version2}/memory.max`]: '700000000\n',
      [`${version2}/memory.current`]: '50000000\n',
      [`${version2}/memory.stat`]: 'anon 60000000\nshmem 50000000\nfile_mapped 50000000\n',
    });
    expect(readMemory(made.path).limitUsedBytes).toBe(50_000_000);
  });

  test('the group with the least left decides what can be used, and the tightest limit what is divided', () => {
    write({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '0::/pod/container\n',
      [`${version2}/pod/container/memory.max`]: '500000000\n',
      [`${version2}/pod/container/memory.stat`]: 'anon 100000000\n',
      [`${version2}/pod/memory.max`]: '900000000\n',
      [`${version2}/pod/memory.stat`]: 'anon 850000000\n',
    });
    expect(readMemory(made.path)).toMatchObject({ ownBytes: 500_000_000, usableBytes: 50_000_000 });
  });

  test('a limit above which the kernel only slows processes down is a limit', () => {
    write({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '0::/\n',
      [`${version2}/memory.max`]: 'max\n',
      [`${version2}/memory.high`]: '400000000\n',
    });
    expect(readMemory(made.path).ownBytes).toBe(400_000_000);
  });

  test('a tighter group above, which a container of version 1 does not see, is known from memory.stat', () => {
    write({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '9:memory:/docker/0123\n',
      [`${version1}/memory.limit_in_bytes`]: '9223372036854771712\n',
      [`${version1}/memory.stat`]: 'hierarchical_memory_limit 300000000\ntotal_rss 1000\n',
    });
    expect(readMemory(made.path).ownBytes).toBe(300_000_000);
  });

  test('without a group, or with one that is larger than the machine, the machine counts', () => {
    write({ 'proc/meminfo': meminfo });
    expect(readMemory(made.path)).toMatchObject({ limitBytes: undefined, ownBytes: 16_384_000_000 });
    write({ 'proc/self/cgroup': '0::/\n', [`${version2}/memory.max`]: '99000000000\n' });
    expect(readMemory(made.path)).toMatchObject({ limitBytes: undefined, ownBytes: 16_384_000_000 });
  });
});

describe('limits of processes and open files', () => {
  test.each([
    ['2', '0::/box', 'sys/fs/cgroup/box'],
    ['1', '8:pids:/box', 'sys/fs/cgroup/pids/box'],
  ])('the group with the least left counts (version %s)', (_version, line, folder) => {
    write({
      'proc/self/cgroup': line,
      [`${folder}/pids.max`]: '100\n',
      [`${folder}/pids.current`]: '97\n',
      [`${dirname(folder)}/pids.max`]: '50\n',
      [`${dirname(folder)}/pids.current`]: '10\n',
    });
    expect(readProcesses(made.path)).toEqual({ most: 100, used: 97 });
    expect(processesShort(readProcesses(made.path))).toMatch(/^97 of the 100 .* \(raise pids\.max\)$/);
    expect(processesShort({ most: 100, used: 80 })).toBeUndefined();
  });

  test('without a limit the kernel’s own is told', () => {
    write({ 'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/pids.max': 'max\n', 'proc/sys/kernel/pid_max': '4194304\n' });
    expect(readProcesses(made.path)).toEqual({ most: 4_194_304, used: undefined });
  });

  test('the soft limit of open files is read', () => {
    write({
      'proc/self/limits':
        'Limit                     Soft Limit           Hard Limit           Units     \n' +
        'Max open files            256                  1048576              files     \n',
      'proc/self/fd/0': '',
      'proc/self/fd/1': '',
    });
    expect(readDescriptors(made.path)).toEqual({ most: 256, used: 2 });
    rmSync(join(made.path, 'proc/self/limits'));
    expect(readDescriptors(made.path).most).toBeUndefined();
  });
});

const sumOf = (parts: object): number => Object.values(parts).reduce((sum: number, each: number) => sum + each, 0);

describe('division of memory', () => {
  const users = fc.constantFrom('host', 'host with GPUs', 'worker');
  const bytes = fc.oneof(fc.integer({ min: 0, max: 2 ** 31 }), fc.integer({ min: 0, max: 2 ** 43 }));
  const given = fc.record(
    {
      inFlight: bytes,
      sessions: bytes,
      pinned: bytes,
    },
    { requiredKeys: [] },
  );

  test('its sum is below all there is, unless the operator has set seven eighths of it, and then a warning says so', () => {
    fc.assert(
      fc.property(bytes, users, given, (totalBytes, user, set) => {
        const { parts, warning } = divideMemory(totalBytes, user, set);
        const { pinned: _pinned, ...others } = set;
        const setBytes = sumOf(user === 'host with GPUs' ? set : others);
        expect(Math.min(...Object.values(parts))).toBeGreaterThanOrEqual(0);
        expect(sumOf(parts) < totalBytes || totalBytes === 0 || setBytes >= totalBytes * (7 / 8)).toBe(true);
        const hasGiven = Object.keys(user === 'host with GPUs' ? set : others).length > 0;
        expect(warning !== undefined).toBe(hasGiven && sumOf(parts) >= totalBytes);
      }),
    );
  });

  test('what an operator sets is kept, whatever else there is', () => {
    fc.assert(
      fc.property(bytes, users, given, (totalBytes, user, set) => {
        const { parts } = divideMemory(totalBytes, user, set);
        const pinned = user === 'host with GPUs' ? (set.pinned ?? parts.pinned) : 0;
        expect(parts).toMatchObject({ ...set, pinned });
      }),
    );
  });

  test('more memory makes no part smaller', () => {
    fc.assert(
      fc.property(bytes, bytes, users, given, (one, other, user, set) => {
        const [less, more] = [Math.min(one, other), Math.max(one, other)].map(
          (totalBytes) => divideMemory(totalBytes, user, set).parts,
        );
        for (const part of Object.keys(less!) as (keyof typeof less)[]) {
          expect(more![part]).toBeGreaterThanOrEqual(less![part]);
        }
      }),
    );
  });

  test('a part that nothing takes has no memory', () => {
    expect(divideMemory(8e9, 'host').parts).toMatchObject({ pinned: 0, gpuProcess: 0, cache: 0 });
    expect(divideMemory(8e9, 'host', { pinned: 4e9 }).parts.pinned).toBe(0);
    expect(divideMemory(8e9, 'worker').parts).toMatchObject({ validators: 0 });
  });

  test('the warning has the numbers', () => {
    expect(divideMemory(1e9, 'host', { sessions: 9e8, inFlight: 2e8 }).warning).toMatch(
      /^200 MB for bodies .*\(limits\.inFlight\) and 900 MB for sessions .*\(cpu\.memory\) leave too little of the 1 GB /,
    );
    expect(divideMemory(1e9, 'host', { sessions: 8e8 }).warning).toBeUndefined();
    // What remains can still serve something.
    expect(divideMemory(1e9, 'host with GPUs', { pinned: 12e9 }).parts.sessions).toBeGreaterThan(1e7);
  });

  test('two sessions of ResNet-50 fit into a container of 700 MiB', () => {
    const { parts } = divideMemory(700 * 2 ** 20, 'host');
    expect(sessionsThatFit(parts.sessions, 102e6)).toBe(2);
  });

  test('a container of 1.2 GB with a GPU pins less than half of it', () => {
    const { parts } = divideMemory(1_258_291_200, 'host with GPUs');
    expect(parts.pinned).toBeLessThan(0.3 * 1_258_291_200);
  });

  test('its text names each part that has memory, and what stays free', () => {
    const text = divisionText(divideMemory(1e9, 'host'));
    expect(text).toMatch(/^sessions on CPU cores \(cpu\.memory\) \d+ MB, .*the host \d+ MB.*; \d+ MB stay free$/);
    expect(text).not.toContain('pinned');
  });

  test('a body and a validator have enough to begin with, however little there is', () => {
    const tiny = divideMemory(1000, 'host');
    expect(inFlightBytes(tiny)).toBe(16 * 2 ** 20);
    expect(validatorLimitBytes(tiny)).toBe(256 * 2 ** 20);
    const large = divideMemory(64e9, 'host');
    expect(validatorLimitBytes(large, 2)).toBe(Math.floor(large.parts.validators / 2));
  });

  test('a budget that shrinks again and again keeps a sixteenth', () => {
    let left = 1600;
    for (let kills = 0; kills < 10; kills++) left = shrunkBytes(left, 1600);
    expect(left).toBe(100);
    expect(shrunkBytes(1600, 1600)).toBe(800);
  });
});
