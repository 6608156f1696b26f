/** Memory shared with a child: what crosses is what was sent, whatever the sizes, the order, and the child's words. */
import fc from 'fast-check';
import { closeSync, fstatSync, ftruncateSync, readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { FrameDecoder, encodeMessage, owned, type FrameRegion, type Message, type Tensor } from '../tensor/index.ts';
import { libcFunction } from './libc.ts';
import { makeRegion, Region } from './region.ts';

const seed = Number(process.env['TURNTABLE_SEED'] ?? 1);
const MiB = 2 ** 20;

let host: Region;
let child: Region;
let fd: number;

beforeEach(() => {
  const made = makeRegion()!;
  ({ region: host, fd } = made);
  child = new Region(fd, 'child');
});

afterEach(() => {
  host[Symbol.dispose]();
  child[Symbol.dispose]();
  closeSync(fd);
});

function tensor(bytes: number, first: number): Tensor {
  const data = new Uint8Array(bytes).fill(first);
  data.set([1, 2, 3].map((each) => first + each));
  return { name: 'x', datatype: 'UINT8', shape: [bytes], data };
}

const frame = (sent: Message<object>, region?: FrameRegion): Buffer => Buffer.concat(encodeMessage(sent, region));

/** What a message is behind its way through a frame. */
function through(sent: Message<object>, from: Region, to: Region): { frameBytes: number; got: Message<object>[] } {
  const bytes = frame(sent, from);
  return { frameBytes: bytes.length, got: new FrameDecoder<object>(undefined, to).push(bytes) };
}

/** A copy of the next message's tensors, which are released. */
function taken(side: Region, from: number, bytes: number): Buffer {
  const { tensors, release } = side.lend(from, bytes);
  const copy = Buffer.from(tensors);
  release();
  return copy;
}

const writtenBytes = (): number => fstatSync(fd).blocks * 512;
const mapped = (): number => readFileSync('/proc/self/maps', 'utf8').split('memfd:turntable-tensors').length;

describe('memory that two processes share', () => {
  test('is read in place where the reader releases each message, and written to again only after that', () => {
    const decoder = new FrameDecoder<object>(undefined, child, true);
    const send = (first: number): Message<object> =>
      decoder.push(frame({ header: {}, tensors: [tensor(6 * MiB, first)] }, host))[0]!;
    const [first, second] = [send(1), send(2)];
    expect(first.tensors[0]!.data[0]).toBe(2);
    // There is no room behind the two, and the first is not released: it goes through the socket.
    const third = send(3);
    expect([third.release, first.tensors[0]!.data[5]]).toEqual([undefined, 1]);
    first.release!();
    const fourth = send(4);
    expect([fourth.tensors[0]!.data[5], first.tensors[0]!.data[5]]).toEqual([4, 4]);
    const own = owned(second);
    expect([own.release, own.tensors[0]!.data[5]]).toEqual([undefined, 2]);
  });

  test('is written to again behind what is still read, in whatever order messages are released', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(5), { minLength: 1, maxLength: 60 }), (steps) => {
        const decoder = new FrameDecoder<object>(undefined, child, true);
        const reading: { readonly message: Message<object>; readonly first: number }[] = [];
        let number = 0;
        for (const step of steps) {
          if (step > 2 && reading.length > 0) reading.splice((step * 7) % reading.length, 1)[0]!.message.release?.();
          else {
            const first = number++ % 200;
            const bytes = (1 + step) * MiB;
            reading.push({
              message: decoder.push(frame({ header: {}, tensors: [tensor(bytes, first)] }, host))[0]!,
              first,
            });
          }
          for (const { message, first: wanted } of reading) expect(message.tensors[0]!.data[100]).toBe(wanted);
        }
        for (const { message } of reading) message.release?.();
        expect(host.put([tensor(16 * MiB, 1)], 16 * MiB)).toBe(0);
        child.skip();
      }),
      { seed, numRuns: 30 },
    );
  });

  test('carries the tensors of a message, both ways, and the frame does not', () => {
    for (const [from, to] of [
      [host, child],
      [child, host],
    ] as const) {
      const tensors = [tensor(MiB, 5), tensor(100_001, 9)];
      const { frameBytes, got } = through({ header: { op: 'run' }, tensors }, from, to);
      expect(frameBytes).toBeLessThan(300);
      expect(got).toHaveLength(1);
      for (const [at, { data }] of tensors.entries()) {
        expect(Buffer.compare(got[0]!.tensors[at]!.data, data)).toBe(0);
      }
    }
  });

  test('leaves small messages, and those that do not fit, to the socket', () => {
    for (const bytes of [3, 4096, 17 * MiB]) {
      const { frameBytes, got } = through({ header: {}, tensors: [tensor(bytes, 5)] }, host, child);
      expect(frameBytes).toBeGreaterThan(bytes);
      expect(got[0]!.tensors[0]!.data).toHaveLength(bytes);
    }
  });

  test('hands over what was sent, in any order of sizes and takings, and has its whole room again', () => {
    const step = fc.oneof(
      { weight: 3, arbitrary: fc.integer({ min: 65_536, max: 7 * MiB }) },
      { weight: 2, arbitrary: fc.constant('take' as const) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const queue: { readonly from: number; readonly data: Uint8Array }[] = [];
        const takeFirst = (): void => {
          const first = queue.shift();
          if (first === undefined) return;
          expect(Buffer.compare(taken(child, first.from, first.data.length), first.data)).toBe(0);
        };
        let number = 0;
        for (const each of steps) {
          if (each === 'take') takeFirst();
          else {
            const one = tensor(each, number++ % 200);
            const from = host.put([one], each);
            if (from !== undefined) queue.push({ from, data: one.data });
          }
        }
        while (queue.length > 0) takeFirst();
        expect(host.put([tensor(16 * MiB, 1)], 16 * MiB)).toBe(0);
        child.skip();
      }),
      { seed, numRuns: 40 },
    );
  });

  test('is not written over before it was taken, even where there is no more room', () => {
    const places = Array.from({ length: 5 }, (_, at) => host.put([tensor(4 * MiB, at)], 4 * MiB));
    expect(places).toEqual([0, 4 * MiB, 8 * MiB, 12 * MiB, undefined]);
    taken(child, 0, 4 * MiB);
    expect(host.put([tensor(4 * MiB, 7)], 4 * MiB)).toBe(0);
    expect(taken(child, 4 * MiB, 4 * MiB)[0]).toBe(2);
  });

  test('gives each tensor memory of its own, which the other side cannot change afterwards', () => {
    const [first, second] = through({ header: {}, tensors: [tensor(MiB, 5), tensor(72, 3)] }, child, host).got[0]!
      .tensors;
    child.put([tensor(MiB + 72, 6)], MiB + 72);
    expect([first!.data[0], first!.data.at(-1), second!.data.at(-1)]).toEqual([6, 5, 3]);
    expect(first!.data.buffer.byteLength).toBe(MiB);
  });

  test('is read within its bounds only, whatever a child says', () => {
    fc.assert(
      fc.property(fc.nat(2 ** 32 - 1), fc.nat(2 ** 32 - 1), (from, bytes) => {
        if (from + bytes <= 16 * MiB) return;
        expect(() => taken(host, from, bytes)).toThrow('of shared memory, which has 16777216');
      }),
      { seed },
    );
  });

  test('stays of use to the host whatever count a child claims', () => {
    for (let time = 0; time < 5; time++) child.skip();
    const places = Array.from({ length: 20 }, () => host.put([tensor(MiB, 3)], MiB));
    expect(places.every((at) => at === undefined || at + MiB <= 16 * MiB)).toBe(true);
  });

  test('has a size that nobody can change', () => {
    const { size } = fstatSync(fd);
    for (const bytes of [0, 2 * size]) expect(() => ftruncateSync(fd, bytes)).toThrow('EPERM');
  });

  test('has pages only where something was written', () => {
    expect(writtenBytes()).toBe(0);
    const from = host.put([tensor(MiB, 5)], MiB)!;
    taken(child, from, MiB);
    // One message at a time needs no more than one message's room.
    for (let time = 0; time < 30; time++) taken(child, host.put([tensor(MiB, 5)], MiB)!, MiB);
    expect(writtenBytes()).toBeLessThan(1.1 * MiB);
  });

  test('gives its pages back after a time without messages, and not while one of them is not taken', () => {
    vi.useFakeTimers();
    try {
      const first = host.put([tensor(MiB, 5)], MiB)!;
      vi.advanceTimersByTime(10 * 60_000);
      expect(taken(child, first, MiB).at(-1)).toBe(5);
      vi.advanceTimersByTime(60_000);
      // What remains is the page of the counts.
      expect(writtenBytes()).toBe(4096);
      expect(taken(child, host.put([tensor(MiB, 6)], MiB)!, MiB).at(-1)).toBe(6);
    } finally {
      vi.useRealTimers();
    }
  });

  test('keeps its pages while they are pinned, and gives them back after that', () => {
    vi.useFakeTimers();
    try {
      for (const [writer, reader, area] of [
        [host, child, child.areas.read],
        [child, host, child.areas.written],
      ] as const) {
        const from = writer.put([tensor(MiB, 5)], MiB)!;
        area.setPinned(true);
        taken(reader, from, MiB);
        vi.advanceTimersByTime(10 * 60_000);
        expect(writtenBytes()).toBeGreaterThan(MiB);
        area.setPinned(false);
        vi.advanceTimersByTime(60_000);
        expect(writtenBytes()).toBeLessThanOrEqual(4096);
      }
    } finally {
      vi.useRealTimers();
    }
  });

  test('keeps what is leased as it is, however many leases there are and whenever each of them ends', () => {
    const ends = fc.array(fc.nat(3), { minLength: 1, maxLength: 12 });
    const [whole, more] = [tensor(16 * MiB, 9), tensor(MiB, 1)];
    fc.assert(
      fc.property(ends, (order) => {
        const from = host.put([whole], 16 * MiB)!;
        const { tensors, release } = child.lend(from, 16 * MiB);
        const parts = [tensors, tensors.subarray(5, 70_000), tensors.subarray(15 * MiB)];
        const leases = parts.map((part) => child.lease(part)!);
        expect(leases.map(({ address }) => address)).toEqual(
          parts.map(({ byteOffset }) => child.areas.read.address + byteOffset - tensors.byteOffset),
        );
        const dispose = [release, ...leases.map((lease) => () => lease[Symbol.dispose]())];
        const over = new Set<number>();
        for (const which of [...order, 0, 1, 2, 3]) {
          expect(host.put([more], MiB) === undefined).toBe(over.size < dispose.length);
          if (over.size === dispose.length) child.skip();
          // One that has ended before changes nothing.
          dispose[which]!();
          over.add(which);
        }
        expect(child.lease(tensors)).toBeUndefined();
      }),
      { seed, numRuns: 30 },
    );
    expect(child.lease(new Uint8Array(8))).toBeUndefined();
  });

  test('hands over what is written to a reservation without a copy, and has the room of one that is not sent again', () => {
    const step = fc.record({
      bytes: fc.array(fc.integer({ min: 0, max: 3 * MiB }), { minLength: 1, maxLength: 3 }),
      end: fc.constantFrom('sent', 'sent with another behind', 'sent in other memory', 'given up', 'sent by another'),
      taken: fc.nat(2),
    });
    const copy = vi.spyOn(Uint8Array.prototype, 'set');
    let copies = 0;
    fc.assert(
      fc.property(fc.array(step, { maxLength: 25 }), (steps) => {
        const queue: { readonly from: number; readonly all: Buffer }[] = [];
        const open: { readonly message: Tensor[]; readonly reserved: Disposable }[] = [];
        const send = (message: Tensor[]): void => {
          const all = Buffer.concat(message.map(({ data }) => data));
          const from = child.put(message, all.byteLength);
          if (from !== undefined) queue.push({ from, all });
        };
        const takeFirst = (): void => {
          const first = queue.shift();
          if (first === undefined) return;
          expect(Buffer.compare(taken(host, first.from, first.all.byteLength), first.all)).toBe(0);
        };
        for (const [number, { bytes, end, taken: takes }] of steps.entries()) {
          const sum = bytes.reduce((all, each) => all + each, 0);
          const reserved = child.reserve(sum);
          if (reserved !== undefined) {
            let at = 0;
            const message = bytes.map((each, index): Tensor => {
              const data = reserved.view.subarray(at, (at += each)).fill(10 * number + index);
              return { name: `${index}`, datatype: 'UINT8', shape: [each], data };
            });
            if (end === 'sent by another') open.push({ message, reserved });
            if (end === 'sent') {
              const before = copy.mock.calls.length;
              send(message);
              copies += copy.mock.calls.length - before;
            }
            if (end === 'sent with another behind') {
              const before = copy.mock.calls.length;
              send([
                ...message,
                { name: 'times', datatype: 'FP64', shape: [3], data: new Uint8Array(24).fill(number) },
              ]);
              // That one alone.
              copies += copy.mock.calls.length - before - 1;
            }
            if (end === 'sent in other memory')
              send(
                message.map(({ name, datatype, shape, data }) => ({
                  name,
                  datatype,
                  shape,
                  data: Uint8Array.from(data),
                })),
              );
            if (end !== 'sent by another') reserved[Symbol.dispose]();
            // A second time it changes nothing.
            if (end === 'given up') reserved[Symbol.dispose]();
          }
          if (number % 3 === 2) {
            // Not in the order in which they were reserved.
            for (const { message, reserved: late } of open.splice(0).toReversed()) {
              send(message);
              late[Symbol.dispose]();
            }
          }
          for (let count = 0; count < takes; count++) takeFirst();
        }
        for (const { reserved } of open) reserved[Symbol.dispose]();
        while (queue.length > 0) takeFirst();
        using all = child.reserve(16 * MiB - 64);
        expect(all).toBeDefined();
      }),
      { seed, numRuns: 40 },
    );
    copy.mockRestore();
    expect(copies).toBe(0);
  });

  test('is no longer mapped after its end, and carries nothing', () => {
    const before = mapped();
    host[Symbol.dispose]();
    host[Symbol.dispose]();
    expect(mapped()).toBe(before - 1);
    expect(host.put([tensor(MiB, 5)], MiB)).toBeUndefined();
    expect(() => taken(host, 0, 1)).toThrow('of shared memory');
  });

  test('stays mapped behind its end for as long as a message is read there', () => {
    const before = mapped();
    const lent = [5, 6].map((first) => host.lend(child.put([tensor(MiB, first)], MiB)!, MiB));
    host[Symbol.dispose]();
    expect([mapped(), lent.map(({ tensors }) => tensors[100])]).toEqual([before, [5, 6]]);
    lent[1]!.release();
    expect([mapped(), lent[0]!.tensors[100]]).toEqual([before, 5]);
    lent[0]!.release();
    expect(mapped()).toBe(before - 1);
    host.skip();
    expect(mapped()).toBe(before - 1);
  });
});

describe('a frame', () => {
  test('without room for its tensors says why, and the next one is whole', () => {
    const memory = {
      grow(bytes: number): void {
        if (bytes > MiB) throw new Error('no room');
      },
    };
    const decoder = new FrameDecoder<object>({ memory, counts: () => true }, host);
    const [large, small] = [2 * MiB, MiB].map((bytes) => ({ header: { bytes }, tensors: [tensor(bytes, 5)] }));
    const got = decoder.push(Buffer.concat([frame(large!, child), frame(small!, child)]));
    expect(got[0]).toMatchObject({ header: { bytes: 2 * MiB }, tensors: [], whyDropped: { message: 'no room' } });
    expect(Buffer.compare(got[1]!.tensors[0]!.data, small!.tensors[0]!.data)).toBe(0);
    expect(child.put([tensor(16 * MiB, 5)], 16 * MiB)).toBe(0);
  });

  test('in any pieces is the message that was sent', () => {
    const sent = { header: { op: 'run' }, tensors: [tensor(MiB, 5)] };
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 50 }), (piece) => {
        const decoder = new FrameDecoder<object>(undefined, child);
        const bytes = frame(sent, host);
        const got: Message<object>[] = [];
        for (let at = 0; at < bytes.length; at += piece) got.push(...decoder.push(bytes.subarray(at, at + piece)));
        expect(got).toHaveLength(1);
        expect(Buffer.compare(got[0]!.tensors[0]!.data, sent.tensors[0]!.data)).toBe(0);
      }),
      { seed, numRuns: 20 },
    );
  });

  test('from a stranger, who shares no memory, is refused', () => {
    const bytes = frame({ header: {}, tensors: [tensor(MiB, 5)] }, host);
    expect(() => new FrameDecoder().push(bytes)).toThrow('over the limit');
  });
});

test('the descriptor of shared memory is closed by the next program', () => {
  const get = libcFunction('int fcntl(int fd, int command, int nothing)')!;
  const getFlags = 1;
  expect(get(fd, getFlags, 0)).toBe(1);
});
