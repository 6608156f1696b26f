import { describe, expect, test } from 'vitest';
import { OK, type Driver } from './calls.ts';
import { driver, machine, type Machine } from './fixture.ts';

describe.skipIf(driver === undefined)('kernels', () => {
  const d = driver as Driver;
  const { cu } = d ?? {};
  const one = { devices: [{ memoryBytes: 16 << 20 }] };

  function launch(m: Machine, name: string, threads: number, sharedBytes: number, parameters: number): number {
    const status = cu.cuLaunchKernel(m.kernel(name), 1, 1, 1, threads, 1, 1, sharedBytes, 0, parameters, 0);
    return status === OK ? cu.cuCtxSynchronize() : status;
  }

  test('threads of a block exchange values through shared memory after a barrier', () => {
    for (let seed = 1; seed <= 5; seed++) {
      const m = machine(d, { ...one, seed });
      const [input, output] = [
        m.pinned(Float32Array.from({ length: 64 }, (_, i) => i)),
        m.pinned(new Float32Array(64)),
      ];
      expect(launch(m, 'reverseInBlock', 64, 0, d.parameters(input.address, output.address))).toBe(OK);
      expect([...output.values]).toEqual(Array.from({ length: 64 }, (_, i) => 63 - i));
    }
  });

  test('the order of threads exposes a missing barrier', () => {
    const m = machine(d, one);
    const [input, output] = [m.pinned(new Float32Array(64)), m.pinned(new Float32Array(64))];
    expect(launch(m, 'reverseWithoutBarrier', 64, 0, d.parameters(input.address, output.address))).toBe(OK);
    expect(output.values.some(Number.isNaN)).toBe(true);
  });

  test('warps shuffle, vote and reduce, and blocks add atomically', () => {
    const m = machine(d, one);
    const input = m.pinned(new Float32Array(1000).fill(1));
    const total = m.pinned([0]);
    expect(launch(m, 'warpSum', 96, 12, d.parameters(input.address, total.address, { i32: 1000 }))).toBe(OK);
    expect(total.values[0]).toBe(1000);
    const votes = m.pinned(new Float32Array(32));
    expect(launch(m, 'votes', 32, 0, d.parameters(votes.address))).toBe(OK);
    const expected = Array.from(
      { length: 32 },
      (_, lane) => 1 + Math.max(0, lane - 1) * 4 + ((lane & ~7) + 5) * 1024 + 11 * 65536,
    );
    expect([...new Int32Array(votes.values.buffer, votes.values.byteOffset, 32)]).toEqual(expected);
  });

  test('16-bit numbers are rounded to nearest even', () => {
    const m = machine(d, one);
    const values = [
      1,
      1.0009765625,
      1.00048828125,
      65519,
      65520,
      -0,
      2 ** -24,
      2.9e-8,
      1e-3,
      Infinity,
      Number.NaN,
      5.3,
    ];
    const [input, halves, bfloats] = [m.pinned(values), m.pinned(values), m.pinned(values)];
    expect(
      launch(m, 'roundTrip16', values.length, 0, d.parameters(input.address, halves.address, bfloats.address)),
    ).toBe(OK);
    expect([...halves.values]).toEqual([
      1,
      1.0009765625,
      1,
      65504,
      Infinity,
      -0,
      2 ** -24,
      0,
      1049 * 2 ** -20,
      Infinity,
      Number.NaN,
      5.30078125,
    ]);
    expect([...bfloats.values].slice(0, 5)).toEqual([1, 1, 1, 65536, 65536]);
    expect(bfloats.values[10]).toBeNaN();
  });

  test('threads of a warp that wait at different places fail the kernel by name', () => {
    const m = machine(d, one);
    const output = m.pinned(new Float32Array(32));
    expect(launch(m, 'divergent', 32, 0, d.parameters(output.address))).toBe(719);
    expect(d.report().faults[0]).toBe(
      'kernel divergent: its threads diverge: 16 wait in __shfl_xor_sync, 16 wait in __syncthreads',
    );
  });

  test('a kernel that accesses other memory is named, and its context is unusable until it is reset', () => {
    const m = machine(d, one);
    const memory = m.alloc(1024);
    expect(launch(m, 'outOfBounds', 32, 0, d.parameters(memory, { i32: 4096 }))).toBe(700);
    expect(d.report().faults[0]).toMatch(
      /^kernel outOfBounds: thread \(\d+,0,0\) of block \(0,0,0\) touched 0x\w+, \d+ bytes past the end of device memory of 1024 bytes/,
    );
    expect(cu.cuCtxSynchronize()).toBe(700);
    expect(cu.cuMemAlloc_v2(d.arenaAddress, 1024)).toBe(700);
    expect(cu.cuDevicePrimaryCtxReset_v2(0)).toBe(OK);
    expect(cu.cuCtxSynchronize()).toBe(OK);
    expect(d.report().live['deviceBytes']).toBe(0);
  });

  test('an overrun of a few bytes is noticed', () => {
    const m = machine(d, one);
    const memory = m.alloc(1000);
    expect(launch(m, 'outOfBounds', 32, 0, d.parameters(memory, { i32: 250 - 31 }))).toBe(700);
    expect(d.report().faults[0]).toContain('kernel outOfBounds wrote past the end');
  });

  test('an argument that is not live memory, or is freed, fails the kernel', () => {
    const m = machine(d, one);
    const memory = m.alloc(1024);
    expect(cu.cuMemFree_v2(memory)).toBe(OK);
    expect(launch(m, 'outOfBounds', 1, 0, d.parameters(memory, { i32: 0 }))).toBe(700);
    expect(d.report().faults[0]).toContain('argument 0');
  });

  test('memory of a peer needs access enabled, in one direction, once', () => {
    const m = machine(d, {
      devices: [{}, {}, {}],
      peers: [
        [0, 1],
        [1, 0],
      ],
    });
    m.use(1);
    const theirs = m.alloc(1024);
    m.use(0);
    expect(cu.cuCtxEnablePeerAccess(m.contexts[2] ?? 0, 0)).toBe(217);
    expect(cu.cuCtxEnablePeerAccess(m.contexts[1] ?? 0, 0)).toBe(OK);
    expect(cu.cuCtxEnablePeerAccess(m.contexts[1] ?? 0, 0)).toBe(704);
    expect(launch(m, 'outOfBounds', 8, 0, d.parameters(theirs, { i32: 0 }))).toBe(OK);
    const ours = m.alloc(1024);
    m.use(1);
    const stream = m.stream();
    const kernel = m.kernel('outOfBounds', 1);
    expect(cu.cuLaunchKernel(kernel, 1, 1, 1, 8, 1, 1, 0, stream, d.parameters(ours, { i32: 0 }), 0)).toBe(OK);
    expect(cu.cuStreamSynchronize(stream)).toBe(700);
    expect(d.report().faults[0]).toContain('memory of device 0 whose peer access device 1 has not enabled');
  });

  test('copies between devices work without peer access', () => {
    const m = machine(d, { devices: [{}, {}], peers: [] });
    const host = m.pinned(new Float32Array(256).fill(9));
    const here = m.alloc(1024);
    m.use(1);
    const there = m.alloc(1024);
    const stream = m.stream();
    cu.cuMemcpyAsync(there, host.address, 1024, stream);
    expect(cu.cuMemcpyPeerAsync(here, m.contexts[0] ?? 0, there, m.contexts[1] ?? 0, 1024, stream)).toBe(OK);
    host.values.fill(0);
    cu.cuStreamSynchronize(stream);
    cu.cuMemcpyDtoH_v2(host.address, here, 1024);
    // The source was overwritten before the first copy ran.
    expect(host.values[0]).toBe(0);
  });

  test('a launch from packed arguments and a configuration does the same', () => {
    const m = machine(d, one);
    const [input, output] = [m.pinned([1, 2]), m.pinned([0, 0])];
    const packed = d.memory(24);
    d.arena.setBigUint64(packed.at, BigInt(input.address), true);
    d.arena.setBigUint64(packed.at + 8, BigInt(output.address), true);
    d.arena.setInt32(packed.at + 16, 2, true);
    const size = d.memory(8);
    d.arena.setBigUint64(size.at, 20n, true);
    const extra = d.pointers([1, packed.address, 2, size.address, 0]);
    const config = d.memory(56);
    for (const [index, value] of [1, 1, 1, 32, 1, 1, 0].entries())
      d.arena.setUint32(config.at + 4 * index, value, true);
    expect(cu.cuLaunchKernelEx(config.address, m.kernel('addOne'), 0, extra)).toBe(OK);
    expect(cu.cuCtxSynchronize()).toBe(OK);
    expect([...output.values]).toEqual([2, 3]);
  });

  test('launches that no GPU accepts are refused', () => {
    const m = machine(d, one);
    const parameters = d.parameters(0, { i32: 0 });
    const kernel = m.kernel('outOfBounds');
    expect(cu.cuLaunchKernel(kernel, 1, 1, 1, 2048, 1, 1, 0, 0, parameters, 0)).toBe(1);
    expect(cu.cuLaunchKernel(kernel, 0, 1, 1, 32, 1, 1, 0, 0, parameters, 0)).toBe(1);
    expect(cu.cuLaunchKernel(kernel, 1, 70000, 1, 32, 1, 1, 0, 0, parameters, 0)).toBe(1);
    expect(cu.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 49153, 0, parameters, 0)).toBe(1);
    expect(cu.cuFuncSetAttribute(kernel, 8, 65536)).toBe(OK);
  });

  test('a kernel may touch only the sub-allocations that were declared', () => {
    const m = machine(d, one);
    const arena = m.alloc(4096);
    d.declareRange(arena, 1024);
    d.declareRange(arena + 1024, 1024);
    const [first, second] = [m.stream(), m.stream()];
    m.addOne(arena, arena, 256, first);
    m.addOne(arena + 1024, arena + 1024, 256, second);
    expect(d.report().races).toEqual([]);
    d.forgetRange(arena);
    m.addOne(arena, arena, 256, first);
    expect(d.report().races).not.toEqual([]);
  });

  test('a kernel may touch only the ranges declared for its launch', () => {
    const m = machine(d, one);
    const memory = m.alloc(4096);
    const [first, second] = [m.stream(), m.stream()];
    d.launchRanges([[memory, 1024, 3]]);
    m.addOne(memory, memory, 256, first);
    d.launchRanges([[memory + 1024, 1024, 3]]);
    m.addOne(memory + 1024, memory + 1024, 256, second);
    expect(d.report().races).toEqual([]);
  });

  test('source that does not compile is refused with the line', () => {
    machine(d, one);
    expect(() => d.compile('\n#line 1 "mine.cu"\nKERNEL void broken(float* out) {\n  out[0] = nothing;\n}')).toThrow(
      /NVRTC 6: [^]*mine\.cu:2:\d+: error/,
    );
    expect(() => d.compile('#include <stdio.h>\n')).toThrow(/NVRTC 6: [^]*stdio\.h/);
    expect(() => d.compile('', ['--no-such-option'])).toThrow(/NVRTC 5: [^]*--no-such-option/);
    expect(() => d.compile('', ['--gpu-architecture=sm_70'])).toThrow(/NVRTC 5/);
  });

  test('a cubin for a newer architecture is refused by the device', () => {
    machine(d, { devices: [{ computeCapability: [8, 0] }] });
    const image = d.compile('KERNEL void nothing(float* out) {}');
    expect(cu.cuModuleLoadData(d.arenaAddress, image)).toBe(209);
  });
});
