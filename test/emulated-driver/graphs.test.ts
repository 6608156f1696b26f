import { describe, expect, test } from 'vitest';
import { OK, type Driver } from './calls.ts';
import { driver, machine } from './fixture.ts';

describe.skipIf(driver === undefined)('graphs', () => {
  const d = driver as Driver;
  const { cu, out } = d ?? {};
  const one = { devices: [{ memoryBytes: 16 << 20 }] };

  test('a captured kernel runs at each launch, not during the capture', () => {
    const m = machine(d, one);
    const host = m.pinned([0]);
    const stream = m.stream();
    expect(cu.cuStreamBeginCapture_v2(stream, 1)).toBe(OK);
    m.addOne(host.address, host.address, 1, stream);
    const graph = out((slot) => cu.cuStreamEndCapture(stream, slot));
    const exec = out((slot) => cu.cuGraphInstantiateWithFlags(slot, graph, 0));
    cu.cuStreamSynchronize(stream);
    expect(host.values[0]).toBe(0);
    for (let launch = 0; launch < 3; launch++) expect(cu.cuGraphLaunch(exec, stream)).toBe(OK);
    cu.cuStreamSynchronize(stream);
    expect(host.values[0]).toBe(3);
    expect(d.report().live).toMatchObject({ graphs: 1, graphExecs: 1 });
    expect([cu.cuGraphExecDestroy(exec), cu.cuGraphDestroy(graph)]).toEqual([OK, OK]);
    expect(d.report().live).toMatchObject({ graphs: 0, graphExecs: 0 });
  });

  test('streams that wait for captured events become branches, which must be joined', () => {
    const m = machine(d, one);
    const host = m.pinned([1]);
    const [a, b] = [m.alloc(4), m.alloc(4)];
    const [first, second] = [m.stream(), m.stream()];
    const capture = (join: boolean): number => {
      const [fork, joined] = [m.event(), m.event()];
      cu.cuStreamBeginCapture_v2(first, 1);
      cu.cuMemcpyAsync(a, host.address, 4, first);
      cu.cuEventRecord(fork, first);
      cu.cuStreamWaitEvent(second, fork, 0);
      m.addOne(a, b, 1, second);
      cu.cuEventRecord(joined, second);
      if (join) cu.cuStreamWaitEvent(first, joined, 0);
      cu.cuMemcpyAsync(host.address, join ? b : a, 4, first);
      return cu.cuStreamEndCapture(first, d.arenaAddress);
    };
    expect(capture(false)).toBe(904);
    expect(capture(true)).toBe(OK);
    const graph = Number(d.arena.getBigUint64(0, true));
    const exec = out((slot) => cu.cuGraphInstantiateWithFlags(slot, graph, 0));
    for (let launch = 0; launch < 3; launch++) cu.cuGraphLaunch(exec, first);
    cu.cuStreamSynchronize(first);
    expect(host.values[0]).toBe(4);
    expect(d.report().races).toEqual([]);
  });

  test('two launches in two streams race unless something orders them', () => {
    const m = machine(d, one);
    const memory = m.alloc(4);
    const [first, second] = [m.stream(), m.stream()];
    cu.cuStreamBeginCapture_v2(first, 1);
    cu.cuMemsetD8Async(memory, 0, 4, first);
    const graph = out((slot) => cu.cuStreamEndCapture(first, slot));
    const exec = out((slot) => cu.cuGraphInstantiateWithFlags(slot, graph, 0));
    cu.cuMemsetD8Async(memory, 1, 4, second);
    cu.cuGraphLaunch(exec, first);
    expect(d.report().races).toHaveLength(1);
  });

  test('in a capture, waiting for an outside event fails, and so does waiting for the stream', () => {
    const m = machine(d, one);
    const memory = m.alloc(4);
    const [stream, other, event] = [m.stream(), m.stream(), m.event()];
    cu.cuMemsetD8Async(memory, 1, 4, other);
    cu.cuEventRecord(event, other);
    cu.cuStreamBeginCapture_v2(stream, 1);
    expect(cu.cuStreamWaitEvent(stream, event, 0)).toBe(905);
    expect(cu.cuStreamEndCapture(stream, d.arenaAddress)).toBe(901);
    cu.cuStreamBeginCapture_v2(stream, 1);
    expect(cu.cuStreamSynchronize(stream)).toBe(900);
    expect(cu.cuStreamEndCapture(stream, d.arenaAddress)).toBe(901);
    // A GLOBAL capture forbids every call that may synchronize, in any stream.
    cu.cuStreamBeginCapture_v2(stream, 0);
    expect(cu.cuMemAlloc_v2(d.arenaAddress, 4)).toBe(900);
    expect(cu.cuStreamEndCapture(stream, d.arenaAddress)).toBe(901);
  });

  test('a wait with the external flag is for the record at launch time', () => {
    const m = machine(d, one);
    const host = m.pinned([5]);
    const [weights, result] = [m.alloc(4), m.alloc(4)];
    const [load, execution, event] = [m.stream(), m.stream(), m.event()];
    cu.cuStreamBeginCapture_v2(execution, 1);
    expect(cu.cuStreamWaitEvent(execution, event, 1)).toBe(OK);
    m.addOne(weights, result, 1, execution);
    const graph = out((slot) => cu.cuStreamEndCapture(execution, slot));
    const exec = out((slot) => cu.cuGraphInstantiateWithFlags(slot, graph, 0));
    cu.cuMemcpyAsync(weights, host.address, 4, load);
    cu.cuEventRecord(event, load);
    cu.cuGraphLaunch(exec, execution);
    cu.cuMemcpyAsync(host.address, result, 4, execution);
    cu.cuStreamSynchronize(execution);
    expect(host.values[0]).toBe(6);
    expect(d.report().races).toEqual([]);
  });

  test('an update accepts other addresses of copies, but none in memory of another kind', () => {
    const m = machine(d, one);
    const host = m.pinned([7]);
    const [from, to, other] = [m.alloc(4), m.alloc(4), m.alloc(4)];
    const stream = m.stream();
    cu.cuMemcpyAsync(from, host.address, 4, stream);
    cu.cuStreamSynchronize(stream);
    const capture = (target: number): number => {
      cu.cuStreamBeginCapture_v2(stream, 1);
      cu.cuMemcpyAsync(target, from, 4, stream);
      return out((slot) => cu.cuStreamEndCapture(stream, slot));
    };
    const exec = out((slot) => cu.cuGraphInstantiateWithFlags(slot, capture(to), 0));
    const info = d.memory(24);
    expect(cu.cuGraphExecUpdate_v2(exec, capture(host.address), info.address)).toBe(910);
    expect(cu.cuGraphExecUpdate_v2(exec, capture(other), info.address)).toBe(OK);
    host.values[0] = 0;
    cu.cuGraphLaunch(exec, stream);
    cu.cuMemcpyAsync(host.address, other, 4, stream);
    cu.cuStreamSynchronize(stream);
    expect(host.values[0]).toBe(7);
  });

  test('an equal graph updates an executable one, another does not, and a kernel node takes new arguments', () => {
    const m = machine(d, one);
    const [first, second] = [m.pinned([0]), m.pinned([0])];
    const stream = m.stream();
    const capture = (address: number, times: number): number => {
      cu.cuStreamBeginCapture_v2(stream, 1);
      for (let i = 0; i < times; i++) m.addOne(address, address, 1, stream);
      return out((slot) => cu.cuStreamEndCapture(stream, slot));
    };
    const exec = out((slot) => cu.cuGraphInstantiateWithFlags(slot, capture(first.address, 1), 0));
    const info = d.memory(24);
    expect(cu.cuGraphExecUpdate_v2(exec, capture(second.address, 1), info.address)).toBe(OK);
    cu.cuGraphLaunch(exec, stream);
    expect(cu.cuGraphExecUpdate_v2(exec, capture(second.address, 2), info.address)).toBe(910);
    const params = d.memory(72);
    d.arena.setBigUint64(params.at, BigInt(m.kernel('addOne')), true);
    for (const [index, value] of [1, 1, 1, 64, 1, 1, 0].entries())
      d.arena.setUint32(params.at + 8 + 4 * index, value, true);
    const values = d.parameters(first.address, first.address, { i32: 1 });
    d.arena.setBigUint64(params.at + 40, BigInt(values), true);
    expect(cu.cuGraphExecKernelNodeSetParams_v2(exec, 1, params.address)).toBe(OK);
    cu.cuGraphLaunch(exec, stream);
    cu.cuStreamSynchronize(stream);
    expect([first.values[0], second.values[0]]).toEqual([1, 1]);
  });
});
