/** Damaged frames: each is refused with a sentence, and none makes the reader reserve memory that it only claims. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { decodeMessage, encodeMessage, FrameDecoder, reuse } from './frame.ts';
import { inParts, type Tensor } from './tensor.ts';

function frame(header: unknown, tensorBytes: number, payload = Buffer.alloc(0)): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(12);
  prefix.writeUInt32LE(json.byteLength, 0);
  prefix.writeBigUInt64LE(BigInt(tensorBytes), 4);
  return Buffer.concat([prefix, json, payload]);
}

test.each([
  ['nothing in the place of a tensor', [null], /has no name/],
  ['a tensor without a size', [{ name: 'x', datatype: 'FP32', shape: [1] }], /no binary_data_size/],
  [
    'a shape that is none',
    [{ name: 'x', datatype: 'FP32', shape: '1', parameters: { binary_data_size: 4 } }],
    /no shape/,
  ],
  [
    'a size below zero',
    [{ name: 'x', datatype: 'FP32', shape: [1], parameters: { binary_data_size: -4 } }],
    /no shape or/,
  ],
])('a header with %s is refused as that', (_, tensors, reason) => {
  expect(() => decodeMessage(frame({ tensors }, 4, Buffer.alloc(4)))).toThrow(reason);
});

test('a frame that claims two gigabytes reserves a fraction of them before they come', () => {
  const before = process.memoryUsage().arrayBuffers;
  const decoder = new FrameDecoder();
  decoder.push(frame({ op: 'run' }, 2e9));
  decoder.push(Buffer.alloc(10));
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(200e6);
});

test('a frame larger than the first reservation arrives as it was sent', () => {
  const payload = Buffer.alloc(144 * 2 ** 20, 'abcdefg');
  const described = { name: 'x', datatype: 'UINT8', shape: [payload.byteLength] };
  const tensors = [{ ...described, parameters: { binary_data_size: payload.byteLength } }];
  const whole = frame({ tensors }, payload.byteLength, payload);
  const decoder = new FrameDecoder();
  const messages = [];
  for (let at = 0; at < whole.byteLength; at += 2 ** 20)
    messages.push(...decoder.push(whole.subarray(at, at + 2 ** 20)));
  expect(messages).toHaveLength(1);
  expect(payload.equals(messages[0]!.tensors[0]!.data)).toBe(true);
});

/** Reads a stream as a socket does: into the space that the decoder gives, by so many bytes at a time. */
function* readIntoSpace<Header extends object>(decoder: FrameDecoder<Header>, stream: Buffer, cuts: readonly number[]) {
  for (let at = 0, cut = 0; at < stream.byteLength; cut++) {
    const space = decoder.space();
    const bytes = stream.copy(space, 0, at, at + cuts[cut % cuts.length]!);
    at += bytes;
    yield { space, messages: decoder.filled(bytes) };
  }
}

function* pushInParts<Header extends object>(decoder: FrameDecoder<Header>, stream: Buffer, cuts: readonly number[]) {
  for (let at = 0, cut = 0; at < stream.byteLength; cut++) {
    const part = stream.subarray(at, (at += cuts[cut % cuts.length]!));
    yield { messages: decoder.push(Buffer.from(part)) };
  }
}

const sizedMessage = (bytes: number, index: number) => ({
  header: { index },
  tensors: [{ name: 'x', datatype: 'UINT8' as const, shape: [bytes], data: Buffer.alloc(bytes, `of ${index}`) }],
});

test('messages of any size are read into the given space, wherever the stream is cut, and stay as they are', () => {
  const sizes = fc.array(fc.oneof(fc.nat(200), fc.nat(500_000)), { minLength: 1, maxLength: 6 });
  const cuts = fc.array(fc.oneof(fc.integer({ min: 1, max: 30 }), fc.integer({ min: 1, max: 300_000 })), {
    minLength: 1,
    maxLength: 6,
  });
  const property = fc.property(sizes, cuts, (bytes, some) => {
    const sent = bytes.map(sizedMessage);
    const stream = Buffer.concat(sent.flatMap((message) => encodeMessage(message)));
    const decoder = new FrameDecoder();
    // At least one large cut, so that half a million bytes do not take as many reads.
    const received = [...readIntoSpace(decoder, stream, [...some, 100_000])].flatMap(({ messages }) => messages);
    expect(received.map(({ header }) => header['index'])).toEqual(sent.map(({ header }) => header.index));
    for (const [index, { tensors }] of received.entries())
      expect(sent[index]!.tensors[0]!.data.equals(tensors[0]!.data)).toBe(true);
    expect(decoder.idle).toBe(true);
  });
  fc.assert(property, { numRuns: 50 });
});

test('messages that come in several reads count until they are whole; without room they are dropped, and all others arrive as they were sent', () => {
  const kinds = fc.constantFrom('free' as const, 'counted' as const, 'refused' as const);
  const sizes = fc.array(fc.record({ bytes: fc.nat(400_000), kind: kinds }), { minLength: 1, maxLength: 6 });
  const cuts = fc.array(fc.integer({ min: 1, max: 150_000 }), { minLength: 1, maxLength: 6 });
  const property = fc.property(sizes, cuts, fc.boolean(), fc.boolean(), (frames, some, isPushed, isCut) => {
    const sent = frames.map(({ bytes }, index) => sizedMessage(bytes, index));
    const whole = Buffer.concat(sent.flatMap((message) => encodeMessage(message)));
    const stream = isCut ? whole.subarray(0, -1) : whole;
    const refused = new Error('no room');
    const asked: number[] = [];
    let held = 0;
    const grown: [bytes: number, held: number][] = [];
    const decoder = new FrameDecoder<{ index: number }>({
      counts: ({ index }) => {
        asked.push(index);
        return frames[index]!.kind !== 'free';
      },
      memory: {
        grow: (bytes) => {
          const isRefused = bytes > 0 && frames[asked.at(-1)!]!.kind === 'refused';
          if (isRefused) throw refused;
          held += bytes;
          grown.push([bytes, held]);
        },
      },
    });
    const read = isPushed ? pushInParts(decoder, stream, some) : readIntoSpace(decoder, stream, [...some, 100_000]);
    const received = [...read].flatMap(({ messages }) => messages);
    const arrived = isCut ? sent.slice(0, -1) : sent;
    expect(received.map(({ header }) => header.index)).toEqual(arrived.map(({ header }) => header.index));
    for (const [index, { tensors, whyDropped }] of received.entries()) {
      const isExpected = asked.includes(index) && frames[index]!.kind === 'refused';
      const [data] = tensors.map((tensor) => Buffer.from(tensor.data));
      expect(whyDropped).toBe(isExpected ? refused : undefined);
      expect(data?.equals(sent[index]!.tensors[0]!.data)).toBe(isExpected ? undefined : true);
    }
    expect(asked).toEqual([...new Set(asked)]);
    expect(decoder.idle).toBe(!isCut);
    const isHalfCounted = isCut && asked.includes(sent.length - 1) && frames.at(-1)!.kind === 'counted';
    expect(held > 0).toBe(isHalfCounted);
    decoder.close();
    expect(held).toBe(0);
    // One at a time, and each gives back what it took.
    for (const [index, [bytes, heldThen]] of grown.entries()) {
      expect(heldThen).toBe(index % 2 === 0 ? bytes : 0);
    }
    const counted = asked.filter((index) => frames[index]!.kind === 'counted').map((index) => frames[index]!.bytes);
    const taken = grown.flatMap(([bytes]) => (bytes > 0 ? [bytes] : []));
    expect(taken.map((bytes, index) => bytes > counted[index]!)).toEqual(counted.map(() => true));
  });
  fc.assert(property, { numRuns: 50 });
});

test('the tensor of a long message stays where it was read', () => {
  const stream = Buffer.concat(encodeMessage(sizedMessage(1_000_000, 1)));
  const read = [...readIntoSpace(new FrameDecoder(), stream, [64 * 1024])];
  const { buffer } = read.at(-1)!.messages[0]!.tensors[0]!.data;
  // All but the first read, which brought its size.
  expect(read.slice(1).every(({ space }) => space.buffer === buffer)).toBe(true);
});

test('a long message is not kept until the next one comes', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const decoder = new FrameDecoder();
  const read = (): WeakRef<ArrayBufferLike> => {
    const stream = Buffer.concat(encodeMessage(sizedMessage(1_000_000, 1)));
    const messages = [...readIntoSpace(decoder, stream, [64 * 1024])].at(-1)!.messages;
    return new WeakRef(messages[0]!.tensors[0]!.data.buffer);
  };
  const memory = read();
  await nextTurn();
  collect();
  expect(memory.deref()).toBeUndefined();
  expect(decoder.idle).toBe(true);
});

const numbered = (run: number, text = 'run'): Buffer =>
  Buffer.concat(
    encodeMessage({ header: { text }, tensors: [{ name: 'x', datatype: 'UINT8', shape: [1], data: Buffer.of(run) }] }),
  );

test('a repeated header is parsed once, and gets the tensors that came with it', () => {
  const decoder = new FrameDecoder();
  const messages = [1, 2, 3].flatMap((run) => decoder.push(numbered(run)));
  expect(messages.map(({ tensors }) => tensors[0]!.data[0])).toEqual([1, 2, 3]);
  expect(messages[1]!.header).toBe(messages[0]!.header);
  expect(messages[2]!.header).toEqual({ text: 'run' });
});

test('a header that repeats is parsed once, also behind thousands that did not', () => {
  const decoder = new FrameDecoder();
  for (let run = 0; run < 3000; run++) decoder.push(numbered(run % 256, `number ${run}`));
  const headers = Array.from({ length: 2000 }, () => decoder.push(numbered(1))[0]!.header);
  expect(headers.at(-1)).toBe(headers.at(-2));
});

test('a repeated header is refused in front of other bytes than it names', () => {
  const decoder = new FrameDecoder();
  decoder.push(numbered(1));
  const longer = Buffer.concat([numbered(2), Buffer.of(0)]);
  longer.writeUInt32LE(2, 4);
  expect(() => decoder.push(longer)).toThrow('1 bytes follow the last tensor of a message');
});

test('thousands of different headers, some repeated, are each read right', () => {
  const decoder = new FrameDecoder();
  for (let run = 0; run < 3000; run++) {
    const text = run % 3 === 0 ? 'again' : `number ${run}`;
    expect(decoder.push(numbered(run % 256, text))).toMatchObject([
      { header: { text }, tensors: [{ data: { 0: run % 256 } }] },
    ]);
  }
});

test('messages of any size, read in any pieces, have their tensors at multiples of 8 bytes where each read had one message', () => {
  const property = fc.property(
    fc.array(fc.record({ text: fc.string(), values: fc.nat(40) }), { maxLength: 20 }),
    (sent) => {
      const decoder = new FrameDecoder();
      for (const { text, values } of sent) {
        const data = new Uint8Array(8 * values + 3).fill(values);
        const tensor = { name: text, datatype: 'UINT8', shape: [data.length], data } as const;
        const stream = Buffer.concat(encodeMessage({ header: { text }, tensors: [tensor] }));
        const [read] = [...readIntoSpace(decoder, stream, [stream.byteLength])];
        const [message] = read!.messages;
        expect(message).toMatchObject({ header: { text }, tensors: [{ name: text, data: Buffer.from(data) }] });
        expect(message!.tensors[0]!.data.byteOffset % 8).toBe(0);
      }
    },
  );
  fc.assert(property);
});

test('a frame that the system has taken is overwritten by the next one, and no frame that waits', () => {
  const property = fc.property(fc.array(fc.record({ bytes: fc.nat(70_000), isTaken: fc.boolean() })), (sent) => {
    const waiting: { readonly frame: Uint8Array; readonly run: number }[] = [];
    let taken: Uint8Array | undefined;
    for (const [run, { bytes, isTaken }] of sent.entries()) {
      const data = Buffer.alloc(bytes, run);
      const [frame] = encodeMessage({ header: {}, tensors: [{ name: 'x', datatype: 'UINT8', shape: [bytes], data }] });
      // One that does not fit behind it begins new memory.
      const begins = frame!.buffer === taken?.buffer ? taken.byteOffset : frame!.byteOffset;
      expect(frame!.byteOffset).toBe(begins);
      taken = isTaken ? frame : undefined;
      if (isTaken) reuse(frame!);
      else if (bytes <= 64 * 1024) waiting.push({ frame: frame!, run });
    }
    // One that was written before the last does not make room.
    for (const { frame } of waiting.slice(0, -1)) reuse(frame);
    for (const { frame, run } of waiting) {
      const { data } = decodeMessage(frame).tensors[0]!;
      expect(data.every((value) => value === run % 256)).toBe(true);
    }
  });
  fc.assert(property, { numRuns: 30 });
});

test('a tensor in pieces is sent like one that is whole, of any size, and is not put together for that', () => {
  const concat = vi.spyOn(Buffer, 'concat');
  fc.assert(
    fc.property(fc.array(fc.nat(50_000), { maxLength: 6 }), fc.nat(100), (sizes, rest) => {
      const parts = sizes.map((bytes, at) => new Uint8Array(bytes).fill(at + 1));
      const all = Uint8Array.from(parts.flatMap((part) => [...part]));
      const of = { name: 'x', datatype: 'UINT8', shape: [all.byteLength] } as const;
      const other: Tensor = { name: 'y', datatype: 'UINT8', shape: [rest], data: new Uint8Array(rest).fill(9) };
      concat.mockClear();
      const sent = encodeMessage({ header: { op: 'run' }, tensors: [inParts(of, parts), other] });
      expect(concat).not.toHaveBeenCalled();
      const [x, y] = decodeMessage(Buffer.concat(sent)).tensors;
      expect(Buffer.compare(x!.data, all)).toBe(0);
      expect(Buffer.compare(y!.data, other.data)).toBe(0);
    }),
    { numRuns: 30 },
  );
  concat.mockRestore();
});

test('a tensor in pieces has its data where that is read, and a copy of it with other data has those', () => {
  const pieces = inParts({ name: 'x', datatype: 'UINT8', shape: [3] }, [Uint8Array.of(1), Uint8Array.of(2, 3)]);
  expect([...pieces.data]).toEqual([1, 2, 3]);
  expect([...structuredClone(pieces).data]).toEqual([1, 2, 3]);
  const [sent] = encodeMessage({ header: {}, tensors: [{ ...pieces, shape: [1], data: Uint8Array.of(7) }] });
  expect([...decodeMessage(sent!).tensors[0]!.data]).toEqual([7]);
});
