import koffi from 'koffi';
import { expect, test } from 'vitest';
import { pin, unpin } from './host-pages.ts';

const bytes = 2 ** 26;
const pages = bytes / 4096;
const noOut = { address: 0, read: () => 4096 };

/** A driver that notes what it is asked. `register` gives the status of cuMemHostRegister. */
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

/** Pages that the system makes while something is written to the first byte of each. */
function faultsOfTouching(address: number): number {
  const view = new Uint8Array(koffi.view(BigInt(address), bytes));
  const before = process.resourceUsage().minorPageFault;
  for (let page = 0; page < pages; page++) view[page * 4096] = 1;
  return process.resourceUsage().minorPageFault - before;
}

test('the pages of pinned memory are there before the driver is asked to pin them', () => {
  let faults = Infinity;
  const driver = driverWith((address) => {
    faults = faultsOfTouching(address);
    return 0;
  });
  const { call, status, address, kind } = pin(driver, noOut, bytes, 'registered');
  expect({ call, status, kind }).toEqual({ call: 'cuMemHostRegister_v2', status: 0, kind: 'registered' });
  // Others than this thread make pages, too.
  expect(faults).toBeLessThan(pages / 4);
  expect(unpin(driver, address, bytes, kind)).toMatchObject({ call: 'cuMemHostUnregister', status: 0 });
  expect(driver.calls).toEqual(['register', 'unregister']);
});

test.each([1, 304, 800, 801])('a driver that refuses to register memory with status %i allocates it', (refusal) => {
  const driver = driverWith(() => refusal);
  const pinned = pin(driver, noOut, bytes, 'registered');
  expect(pinned).toEqual({ call: 'cuMemHostAlloc', status: 0, address: 4096, kind: 'allocated' });
  expect(unpin(driver, pinned.address, bytes, pinned.kind).call).toBe('cuMemFreeHost');
  expect(driver.calls).toEqual(['register', 'alloc', 'free']);
});

test('where a driver is out of memory, or broken, it is not asked again', () => {
  for (const status of [2, 700, 999]) {
    const driver = driverWith(() => status);
    expect(pin(driver, noOut, bytes, 'registered')).toMatchObject({ call: 'cuMemHostRegister_v2', status, address: 0 });
    expect(driver.calls).toEqual(['register']);
  }
});

test('memory beyond what a process can have is out of memory', () => {
  const driver = driverWith(() => 0);
  expect(pin(driver, noOut, 2 ** 52, 'registered')).toMatchObject({ status: 2, address: 0 });
  expect(driver.calls).toEqual([]);
});
