import { describe, expect, test } from 'vitest';
import { OK, type Driver } from './calls.ts';
import { driver, machine } from './fixture.ts';

describe.skipIf(driver === undefined)('streams and events', () => {
  const d = driver as Driver;
  const { cu, out } = d ?? {};
  const one = { devices: [{ memoryBytes: 16 << 20 }] };
  const ones = new Float32Array(256).fill(1);

  /** A copy in one stream, a kernel in another; `guard` puts a wait between them. */
  function copyThenKernel(guard: boolean): { readonly result: number; readonly launchStatus: number } {
    const m = machine(d, one);
    const host = m.pinned(ones);
    const back = m.pinned(new Float32Array(256));
    const [weights, result] = [m.alloc(1024), m.alloc(1024)];
    const [load, execution, event] = [m.stream(), m.stream(), m.event()];
    cu.cuMemcpyAsync(weights, host.address, 1024, load);
    cu.cuEventRecord(event, load);
    if (guard) cu.cuStreamWaitEvent(execution, event, 0);
    const launchStatus = m.addOne(weights, result, 256, execution);
    cu.cuMemcpyAsync(back.address, result, 1024, execution);
    expect(cu.cuStreamSynchronize(execution)).toBe(OK);
    return { result: back.values[0] ?? 0, launchStatus };
  }

  test('a kernel that waits for the copy of its weights gets them, without a race', () => {
    const { result } = copyThenKernel(true);
    expect(result).toBe(2);
    expect(d.report().races).toEqual([]);
  });

  test('without the wait, the race is reported with both names and the bytes, and the data are wrong', () => {
    const { result } = copyThenKernel(false);
    expect(result).toBeNaN();
    const { races, racesFound } = d.report();
    expect(racesFound).toBe(1);
    expect(races[0]).toMatch(
      /^kernel addOne on stream \d+ of device 0 reads bytes \[0x\w+, 0x\w+\), 1024 bytes: a copy of 1024 bytes on stream \d+ of device 0 wrote them/,
    );
  });

  test('a race fails the call that causes it, on request', () => {
    const m = machine(d, { ...one, failOnRace: true });
    const memory = m.alloc(1024);
    const [first, second] = [m.stream(), m.stream()];
    expect(cu.cuMemsetD8Async(memory, 1, 1024, first)).toBe(OK);
    expect(cu.cuMemsetD8Async(memory, 2, 1024, second)).toBe(719);
  });

  test('a write after a read in another stream is a race too, two reads are not', () => {
    const m = machine(d, one);
    const [memory, a, b] = [m.alloc(1024), m.alloc(1024), m.alloc(1024)];
    const [first, second] = [m.stream(), m.stream()];
    cu.cuMemcpyAsync(a, memory, 1024, first);
    cu.cuMemcpyAsync(b, memory, 1024, second);
    expect(d.report().races).toEqual([]);
    cu.cuMemsetD8Async(memory, 0, 512, second);
    expect(d.report().races).toHaveLength(1);
    expect(d.report().races[0]).toContain('512 bytes');
  });

  test('waiting on the host orders later submissions', () => {
    const m = machine(d, one);
    const memory = m.alloc(1024);
    const [first, second] = [m.stream(), m.stream()];
    cu.cuMemsetD8Async(memory, 1, 1024, first);
    cu.cuStreamSynchronize(first);
    cu.cuMemsetD8Async(memory, 2, 1024, second);
    expect(d.report().races).toEqual([]);
  });

  test('a wait is for the record that is current when it is called', () => {
    const m = machine(d, one);
    const [a, b] = [m.alloc(1024), m.alloc(1024)];
    const [load, execution, event] = [m.stream(), m.stream(), m.event()];
    cu.cuMemsetD8Async(a, 1, 1024, load);
    cu.cuEventRecord(event, load);
    cu.cuStreamWaitEvent(execution, event, 0);
    cu.cuMemsetD8Async(b, 1, 1024, load);
    cu.cuEventRecord(event, load);
    cu.cuMemsetD8Async(a, 2, 1024, execution);
    expect(d.report().races).toEqual([]);
    cu.cuMemsetD8Async(b, 2, 1024, execution);
    expect(d.report().races).toHaveLength(1);
  });

  test('waiting for a never recorded event does not wait, and is reported', () => {
    const m = machine(d, one);
    const [stream, event] = [m.stream(), m.event()];
    expect(cu.cuStreamWaitEvent(stream, event, 0)).toBe(OK);
    expect(cu.cuStreamSynchronize(stream)).toBe(OK);
    expect(d.report().unrecordedWaits).toHaveLength(1);
  });

  test('an event is recorded only in streams of its own context, but any stream can wait for it', () => {
    const m = machine(d, { devices: [{}, {}] });
    const event = m.event();
    m.use(1);
    const stream = m.stream();
    expect(cu.cuEventRecord(event, stream)).toBe(400);
    m.use(0);
    const own = m.stream();
    expect(cu.cuEventRecord(event, own)).toBe(OK);
    expect(cu.cuStreamWaitEvent(stream, event, 0)).toBe(OK);
    expect(cu.cuStreamSynchronize(stream)).toBe(OK);
  });

  test('nothing runs before something waits for it, and an unfinished stream says so', () => {
    const m = machine(d, one);
    const host = m.pinned(ones);
    const memory = m.alloc(1024);
    const [stream, event] = [m.stream(), m.event()];
    cu.cuMemcpyAsync(memory, host.address, 1024, stream);
    cu.cuMemcpyAsync(host.address, memory, 1024, stream);
    cu.cuEventRecord(event, stream);
    // The copy has not read its source yet, as is possible on a GPU.
    host.values.fill(5);
    let queries = 0;
    while (cu.cuEventQuery(event) === 600) queries++;
    expect(queries).toBeLessThan(100);
    expect(host.values[0]).toBe(5);
    expect(cu.cuStreamSynchronize(stream)).toBe(OK);
    expect(cu.cuStreamQuery(stream)).toBe(OK);
  });

  test('a copy from pageable memory has read it when the call returns, one to it is complete', () => {
    const m = machine(d, one);
    const pageable = d.memory(1024);
    const floats = new Float32Array(d.arena.buffer, pageable.at, 256).fill(3);
    const memory = m.alloc(1024);
    const stream = m.stream();
    cu.cuMemcpyAsync(memory, pageable.address, 1024, stream);
    floats.fill(4);
    cu.cuMemcpyAsync(pageable.address, memory, 1024, stream);
    expect(floats[0]).toBe(3);
    expect(d.report().pageableCopies).toBe(2);
  });

  test('timing events give increasing times, events without timing give none', () => {
    const m = machine(d, one);
    const [start, end] = [out((slot) => cu.cuEventCreate(slot, 0)), out((slot) => cu.cuEventCreate(slot, 0))];
    const stream = m.stream();
    const memory = m.alloc(1024);
    cu.cuEventRecord(start, stream);
    cu.cuMemsetD8Async(memory, 1, 1024, stream);
    cu.cuEventRecord(end, stream);
    cu.cuStreamSynchronize(stream);
    const slot = d.memory(4);
    expect(cu.cuEventElapsedTime(slot.address, start, end)).toBe(OK);
    expect(d.arena.getFloat32(slot.at, true)).toBeGreaterThan(0);
    expect(cu.cuEventElapsedTime(slot.address, m.event(), end)).toBe(400);
  });

  test('a seed repeats the order, and every order gives the same result if all waits are there', () => {
    for (const hostility of ['late', 'random', 'early'])
      for (const seed of [1, 2, 3]) {
        const m = machine(d, { ...one, hostility, seed });
        const host = m.pinned(ones);
        const [a, b] = [m.alloc(1024), m.alloc(1024)];
        const [load, execution] = [m.stream(), m.stream()];
        for (let round = 0; round < 5; round++) {
          const [loaded, used] = [m.event(), m.event()];
          cu.cuMemcpyAsync(a, host.address, 1024, load);
          cu.cuEventRecord(loaded, load);
          cu.cuStreamWaitEvent(execution, loaded, 0);
          m.addOne(a, b, 256, execution);
          cu.cuMemcpyAsync(host.address, b, 1024, execution);
          cu.cuEventRecord(used, execution);
          cu.cuStreamWaitEvent(load, used, 0);
        }
        cu.cuCtxSynchronize();
        expect(host.values[17], `${hostility} ${seed}`).toBe(6);
        expect(d.report().races).toEqual([]);
      }
  });

  test('a host function runs even if no call waits for it', async () => {
    const m = machine(d, one);
    const host = m.pinned(ones);
    const memory = m.alloc(1024);
    const stream = m.stream();
    const { default: koffi } = await import('koffi');
    const c = koffi.load('libc.so.6');
    const semaphore: unknown = koffi.alloc('uint8_t', 64);
    const address = koffi.address(koffi.view(semaphore, 64));
    (c.func('sem_init', 'int', ['uint64_t', 'int', 'uint32_t']) as (a: bigint, b: number, c: number) => number)(
      address,
      0,
      0,
    );
    const wait = c.func('sem_wait', 'int', ['uint64_t']);
    cu.cuMemcpyAsync(memory, host.address, 1024, stream);
    const post = Number(koffi.address(c.symbol('sem_post', 'void *')));
    expect(cu.cuLaunchHostFunc(stream, post, address)).toBe(OK);
    await new Promise<void>((resolve, reject) => {
      wait.async(address, (error: Error | null) => {
        if (error === null) resolve();
        else reject(error);
      });
    });
    expect(cu.cuStreamSynchronize(stream)).toBe(OK);
  });
});
