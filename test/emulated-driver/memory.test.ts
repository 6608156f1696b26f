import { libcFunction } from '../../src/process/index.ts';
import { describe, expect, test } from 'vitest';
import { OK, type Driver } from './calls.ts';
import { driver, machine } from './fixture.ts';

describe.skipIf(driver === undefined)('memory', () => {
  const d = driver as Driver;
  const { cu, out } = d ?? {};

  test("allocations beyond the device's memory are refused, and freed memory can be allocated again", () => {
    const m = machine(d, { devices: [{ memoryBytes: 1 << 20 }] });
    const first = m.alloc(600 << 10);
    expect(cu.cuMemAlloc_v2(d.arenaAddress, 600 << 10)).toBe(2);
    expect(cu.cuMemFree_v2(first)).toBe(OK);
    expect(cu.cuMemFree_v2(first)).toBe(1);
    expect(m.alloc(1 << 20)).toBeGreaterThan(first);
    expect(cu.cuMemGetInfo_v2(d.arenaAddress, d.arenaAddress + 8)).toBe(OK);
    expect([d.arena.getBigUint64(0, true), d.arena.getBigUint64(8, true)]).toEqual([0n, 1n << 20n]);
  });

  test('fresh memory is NaN, also in large allocations', () => {
    const m = machine(d, { devices: [{ memoryBytes: 1 << 30 }] });
    const host = m.pinned([0]);
    for (const bytes of [4096, 512 << 20]) {
      const memory = m.alloc(bytes);
      expect(cu.cuMemcpyDtoH_v2(host.address, memory + bytes - 4, 4)).toBe(OK);
      expect(host.values[0]).toBeNaN();
    }
  });

  test('live objects are reported with their kind', () => {
    const m = machine(d, { devices: [{ memoryBytes: 1 << 20 }] });
    m.alloc(1000);
    m.stream();
    m.event();
    const { live, leaks, devices } = d.report();
    expect(live).toMatchObject({ deviceAllocations: 1, deviceBytes: 1000, streams: 1, events: 1 });
    expect(leaks).toEqual([expect.stringContaining('device memory of 1000 bytes')]);
    expect(devices).toEqual([{ usedBytes: 1024, peakBytes: 1024 }]);
  });

  test('a requested failure comes once, after the requested number of calls', () => {
    machine(d, { devices: [{}] });
    d.failNext('cuMemAlloc_v2', 2, 1);
    const statuses = [0, 1, 2].map(() => cu.cuMemAlloc_v2(d.arenaAddress, 1024));
    expect(statuses).toEqual([OK, 2, OK]);
  });

  test('a lost device answers every call with its status, while the other goes on', () => {
    const m = machine(d, { devices: [{}, {}] });
    const stream = m.stream();
    d.loseDevice(0, 999);
    expect(cu.cuMemAlloc_v2(d.arenaAddress, 1024)).toBe(999);
    expect(cu.cuStreamSynchronize(stream)).toBe(999);
    m.use(1);
    expect(m.alloc(1024)).toBeGreaterThan(0);
  });

  test('pinned memory has one address, and host memory is registered once', () => {
    const m = machine(d, { devices: [{}, {}] });
    const host = m.pinned([1, 2]);
    expect(out((slot) => cu.cuMemHostGetDevicePointer_v2(slot, host.address, 0))).toBe(host.address);
    const own = d.memory(64);
    expect(cu.cuMemHostRegister_v2(own.address, 64, 3)).toBe(OK);
    expect(cu.cuMemHostRegister_v2(own.address, 64, 3)).toBe(712);
    expect(cu.cuMemHostUnregister(own.address)).toBe(OK);
    expect(cu.cuMemHostUnregister(own.address)).toBe(713);
    expect(cu.cuMemHostRegister_v2(4096, 64, 3)).toBe(1);
  });

  test('memory is registered once in each of its parts, is not unregistered under a copy, and keeps its pages until then', () => {
    const m = machine(d, { devices: [{}] });
    const own = Math.ceil(d.memory(4 * 4096).address / 4096) * 4096;
    const page = (index: number): number => own + index * 4096;
    expect(cu.cuMemHostRegister_v2(page(1), 4096, 3)).toBe(OK);
    for (const [first, pages] of [
      [0, 2],
      [0, 3],
      [1, 2],
    ] as const)
      expect(cu.cuMemHostRegister_v2(page(first), pages * 4096, 3)).toBe(712);
    const [memory, stream] = [m.alloc(4096), m.stream()];
    cu.cuMemcpyAsync(memory, page(1), 4096, stream);
    expect(cu.cuMemHostUnregister(page(1))).toBe(OK);
    expect(d.report().freesInUse[0]).toContain('may still be using');
    expect(d.report().faults).toEqual([]);
    expect(cu.cuMemHostRegister_v2(page(1), 4096, 3)).toBe(OK);
    const dontNeed = 4;
    libcFunction('int madvise(uintptr_t at, size_t bytes, int advice)')!(page(1), 4096, dontNeed);
    expect(cu.cuMemHostUnregister(page(1))).toBe(OK);
    expect(d.report().faults[0]).toContain('pages were given back while they were pinned');
  });

  test('memory that is freed while work may use it is reported, and the work ends first', () => {
    const m = machine(d, { devices: [{}] });
    const host = m.pinned([0]);
    const memory = m.alloc(4);
    const stream = m.stream();
    cu.cuMemsetD8Async(memory, 0, 4, stream);
    cu.cuMemcpyAsync(host.address, memory, 4, stream);
    host.values[0] = 7;
    expect(cu.cuMemFree_v2(memory)).toBe(OK);
    expect(host.values[0]).toBe(0);
    expect(d.report().freesInUse[0]).toContain('may still be using');
  });

  test('memory freed in a stream may be used by another only after a wait', () => {
    const m = machine(d, { devices: [{}] });
    const [first, second] = [m.stream(), m.stream()];
    const memory = out((slot) => cu.cuMemAllocAsync(slot, 1024, first));
    cu.cuMemFreeAsync(memory, first);
    cu.cuMemsetD8Async(memory, 0, 1024, second);
    expect(d.report().races).toHaveLength(1);
  });

  test('a mapping has no access until it is granted, and is unmapped as it was mapped', () => {
    const m = machine(d, { devices: [{ memoryBytes: 8 << 20 }] });
    const prop = d.memory(32);
    for (const [offset, value] of [
      [0, 1],
      [8, 1],
      [12, 0],
    ] as const)
      d.arena.setInt32(prop.at + offset, value, true);
    const access = d.memory(12);
    for (const [offset, value] of [
      [0, 1],
      [4, 0],
      [8, 3],
    ] as const)
      d.arena.setInt32(access.at + offset, value, true);
    const bytes = 2 << 20;
    const physical = out((slot) => cu.cuMemCreate(slot, bytes, prop.address, 0));
    const range = out((slot) => cu.cuMemAddressReserve(slot, 2 * bytes, 0, 0, 0));
    expect(cu.cuMemMap(range, bytes, 0, physical, 0)).toBe(OK);
    expect(cu.cuMemSetAccess(range, bytes, access.address, 1)).toBe(OK);
    expect(cu.cuMemsetD32_v2(range, 0x3f800000, 4)).toBe(OK);
    expect(cu.cuMemUnmap(range, bytes / 2)).toBe(1);
    expect(cu.cuMemUnmap(range, bytes)).toBe(OK);
    // The physical memory keeps its content in its next mapping, which has no access yet.
    expect(cu.cuMemMap(range + bytes, bytes, 0, physical, 0)).toBe(OK);
    const host = m.pinned([0]);
    expect(cu.cuMemSetAccess(range + bytes, bytes, access.address, 1)).toBe(OK);
    expect(cu.cuMemcpyDtoH_v2(host.address, range + bytes, 4)).toBe(OK);
    expect(host.values[0]).toBe(1);
    expect(cu.cuMemRelease(physical)).toBe(OK);
    expect(d.report().devices[0]?.usedBytes).toBe(bytes);
    expect(cu.cuMemAddressFree(range, 2 * bytes)).toBe(1);
    expect(cu.cuMemUnmap(range + bytes, bytes)).toBe(OK);
    expect(cu.cuMemAddressFree(range, 2 * bytes)).toBe(OK);
    expect(d.report().devices[0]?.usedBytes).toBe(0);
  });

  test('a kernel on a mapping without access fails', () => {
    const m = machine(d, { devices: [{ memoryBytes: 8 << 20 }] });
    const prop = d.memory(32);
    for (const [offset, value] of [
      [0, 1],
      [8, 1],
      [12, 0],
    ] as const)
      d.arena.setInt32(prop.at + offset, value, true);
    const bytes = 2 << 20;
    const physical = out((slot) => cu.cuMemCreate(slot, bytes, prop.address, 0));
    const range = out((slot) => cu.cuMemAddressReserve(slot, bytes, 0, 0, 0));
    cu.cuMemMap(range, bytes, 0, physical, 0);
    m.addOne(range, range, 1, 0);
    expect(cu.cuCtxSynchronize()).toBe(700);
    expect(d.report().faults[0]).toContain('was not given access');
    cu.cuDevicePrimaryCtxReset_v2(0);
    expect(cu.cuMemUnmap(range, bytes)).toBe(OK);
    expect(cu.cuMemAddressFree(range, bytes)).toBe(OK);
    expect(cu.cuMemRelease(physical)).toBe(OK);
  });

  test('a call that is not implemented returns not supported', () => {
    machine(d, { devices: [{}] });
    expect(cu.cuMemcpyBatchAsync_v2()).toBe(801);
  });

  test('a meaningless configuration is refused with a message', () => {
    expect(() => d.configure({ hostility: 'kind' })).toThrow('hostility is late, random or early');
    expect(() => d.configure({ device: [] })).toThrow("the configuration has no 'device'");
  });
});
