import { readFileSync } from 'node:fs';
import koffi from 'koffi';
import { expect, test } from 'vitest';
import { pin, unpin } from './host-pages.ts';

const bytes = 2 ** 26;
const pages = bytes / 4096;
const noOut = { address: 0, read: () => 4096 };

/** A driver that records its calls. `register` gives the status of cuMemHostRegister. */
function driverWith(register: (address: number, size: number) => number) {
  const calls: string[] = [];
  const note = (call: string, status = 0): number => {
    calls.push(call);
    return status;
  };
  return {
    calls,
    cuMemHostRegister_v2: (address: number, size: number) => note('register', register(address, size)),
    cuMemHostUnregister: () => note('unregister'),
    cuMemHostAlloc: () => note('alloc'),
    cuMemFreeHost: () => note('free'),
  };
}

/** Of this thread: the others of the process have some at any time. */
function pageFaults(): number {
  const stat = readFileSync('/proc/thread-self/stat', 'utf8');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[7]);
}

/** Page faults of a write to each page. */
function faultsOfTouching(address: number): number {
  const view = new Uint8Array(koffi.view(BigInt(address), bytes));
  const before = pageFaults();
  for (let page = 0; page < pages; page++) view[page * 4096] = 1;
  return pageFaults() - before;
}

test('the pages of registered memory exist before the driver pins them', () => {
  let faults = Infinity;
  const driver = driverWith((address) => {
    faults = faultsOfTouching(address);
    return 0;
  });
  const { call, status, address, kind } = pin(driver, noOut, bytes, 'registered');
  expect({ call, status, kind }).toEqual({ call: 'cuMemHostRegister_v2', status: 0, kind: 'registered' });
  expect(faults).toBeLessThan(pages / 4);
  expect(unpin(driver, address, bytes, kind)).toMatchObject({ call: 'cuMemHostUnregister', status: 0 });
  expect(driver.calls).toEqual(['register', 'unregister']);
});

/** Linux's letters for the mapping that has this address: 'dc' if forks do not get it. */
function flagsOf(address: number): string[] {
  const mappings = readFileSync('/proc/self/smaps', 'utf8').split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/);
  const found = mappings.find((mapping) => {
    const [, low = '', high = ''] = /^([0-9a-f]+)-([0-9a-f]+) /.exec(mapping) ?? [];
    return Number(`0x${low}`) <= address && address < Number(`0x${high}`);
  });
  return (
    /^VmFlags: (.*)$/m
      .exec(found ?? '')?.[1]
      ?.trim()
      .split(' ') ?? []
  );
}

test('a process that is forked does not get registered memory, whose pages would be copied at once', () => {
  let flags: string[] = [];
  const driver = driverWith((address) => {
    flags = flagsOf(address);
    return 0;
  });
  const { address, kind } = pin(driver, noOut, bytes, 'registered');
  expect(flags).toContain('dc');
  unpin(driver, address, bytes, kind);
});

test.each([1, 304, 800, 801])('after status %i from cuMemHostRegister the driver allocates the memory', (refusal) => {
  const driver = driverWith(() => refusal);
  const pinned = pin(driver, noOut, bytes, 'registered');
  expect(pinned).toEqual({ call: 'cuMemHostAlloc', status: 0, address: 4096, kind: 'allocated' });
  expect(unpin(driver, pinned.address, bytes, pinned.kind).call).toBe('cuMemFreeHost');
  expect(driver.calls).toEqual(['register', 'alloc', 'free']);
});

test('a driver that is out of memory or poisoned is not asked to allocate', () => {
  for (const status of [2, 700, 999]) {
    const driver = driverWith(() => status);
    expect(pin(driver, noOut, bytes, 'registered')).toMatchObject({ call: 'cuMemHostRegister_v2', status, address: 0 });
    expect(driver.calls).toEqual(['register']);
  }
});

test('more bytes than a process can map are out of memory, without a call to the driver', () => {
  const driver = driverWith(() => 0);
  expect(pin(driver, noOut, 2 ** 52, 'registered')).toMatchObject({ status: 2, address: 0 });
  expect(driver.calls).toEqual([]);
});
