import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  byteCount,
  bytesElements,
  bytesOfNumbers,
  checkBytes,
  dataTypes,
  decodeMessage,
  elementBytes,
  elementCount,
  elements,
  encodeMessage,
  FrameDecoder,
  packBytes,
  TensorError,
  tensorOf,
  type DataType,
  type Message,
  type Tensor,
} from './index.ts';

const shapes = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 });
const fixedTypes = dataTypes.filter((datatype) => elementBytes[datatype] > 0);

/** Any valid tensor. */
const tensors: fc.Arbitrary<Tensor> = fc
  .record({ name: fc.string({ minLength: 1 }), datatype: fc.constantFrom(...dataTypes), shape: shapes })
  .chain(({ name, datatype, shape }) => {
    const count = elementCount(shape);
    const data =
      datatype === 'BYTES'
        ? fc.array(fc.uint8Array({ maxLength: 6 }), { minLength: count, maxLength: count }).map(packBytes)
        : fc.uint8Array({
            minLength: byteCount(datatype, shape) ?? 0,
            maxLength: byteCount(datatype, shape) ?? 0,
          });
    return data.map((bytes): Tensor => ({ name, datatype, shape, data: bytes }));
  });

const messages = fc.record({
  header: fc.dictionary(
    fc.string().filter((key) => key !== 'tensors' && key !== '__proto__'),
    fc.oneof(fc.integer(), fc.string(), fc.boolean()),
  ),
  tensors: fc.array(tensors, { maxLength: 4 }),
});

function thrownBy(attempt: () => void): unknown {
  try {
    attempt();
    return undefined;
  } catch (error) {
    return error;
  }
}

function plain({ header, tensors: list }: Message<object>): unknown {
  return { header: { ...header }, tensors: list.map((tensor) => ({ ...tensor, data: [...tensor.data] })) };
}

/** A message of four bytes whose header says that its one tensor takes `size`. */
function messageOf(size: number): Buffer {
  const json = JSON.stringify({
    tensors: [{ name: 'x', datatype: 'UINT8', shape: [size], parameters: { binary_data_size: size } }],
  });
  const prefix = Buffer.alloc(12);
  prefix.writeUInt32LE(json.length, 0);
  prefix.writeUInt32LE(4, 4);
  return Buffer.concat([prefix, Buffer.from(json), Buffer.alloc(4)]);
}

describe('the wire codec', () => {
  it('the wire codec returns any message as it was', () => {
    fc.assert(
      fc.property(messages, (message) => {
        expect(plain(decodeMessage(Buffer.concat(encodeMessage(message))))).toEqual(plain(message));
      }),
    );
  });

  it('the wire codec finds the messages of a stream wherever the stream is cut', () => {
    fc.assert(
      fc.property(
        fc.array(messages, { maxLength: 4 }),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }),
        (some, cuts) => {
          // Twice, since headers repeat.
          const sent = [...some, ...some];
          const stream = Buffer.concat(sent.flatMap((message) => encodeMessage(message)));
          const decoder = new FrameDecoder();
          const received: Message[] = [];
          for (let at = 0, cut = 0; at < stream.byteLength; cut++) {
            const size = cuts[cut % cuts.length] ?? 1;
            received.push(...decoder.push(stream.subarray(at, at + size)));
            at += size;
          }
          expect(received.map(plain)).toEqual(sent.map(plain));
          expect(decoder.idle).toBe(true);
        },
      ),
    );
  });

  it('carries tensors too large to join without copying them', () => {
    const large = tensorOf('x', 'FP32', [100_000], new Float32Array(100_000).fill(1.5));
    const buffers = encodeMessage({ header: {}, tensors: [large] });
    expect(buffers[1]?.buffer).toBe(large.data.buffer);
    expect(plain(decodeMessage(Buffer.concat(buffers)))).toEqual(plain({ header: {}, tensors: [large] }));
  });

  it('the wire codec answers arbitrary bytes with a TensorError or with nothing', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(thrownBy(() => new FrameDecoder().push(bytes))).toSatisfy(
          (error) => error === undefined || error instanceof TensorError,
        );
      }),
    );
  });

  it('the wire codec refuses tensors that take more or fewer bytes than the message has', () => {
    expect(() => decodeMessage(messageOf(5))).toThrow(/takes 5 bytes/);
    expect(() => decodeMessage(messageOf(3))).toThrow(/1 bytes follow/);
    expect(decodeMessage(messageOf(4)).tensors).toHaveLength(1);
  });
});

describe('tensor data', () => {
  it('tensor data is read correctly at any alignment', () => {
    fc.assert(
      fc.property(
        fc.constantFrom<DataType>(...fixedTypes),
        fc.integer({ min: 0, max: 7 }),
        fc.integer({ min: 0, max: 5 }),
        (datatype, offset, count) => {
          if (datatype === 'BYTES') return;
          const width = elementBytes[datatype];
          const bytes = Buffer.from(Array.from({ length: offset + count * width }, (_, i) => i));
          const view = elements({ name: 'x', datatype, shape: [count], data: bytes.subarray(offset) });
          expect([...new Uint8Array(view.buffer, view.byteOffset, view.byteLength)]).toEqual([
            ...bytes.subarray(offset),
          ]);
        },
      ),
    );
  });

  it('tensor data of the wrong length is refused with both lengths', () => {
    const tensor: Tensor = { name: 'pixels', datatype: 'FP32', shape: [2, 3], data: new Uint8Array(23) };
    expect(() => checkBytes(tensor)).toThrow(/'pixels' has 23 bytes .* takes 24/);
  });

  it('tensor data of BYTES is counted element by element', () => {
    const data = packBytes(['un', 'deux', '']);
    expect(() => checkBytes({ name: 'w', datatype: 'BYTES', shape: [3], data })).not.toThrow();
    expect(() => checkBytes({ name: 'w', datatype: 'BYTES', shape: [2], data })).toThrow(/3 BYTES elements/);
    expect(() => [...bytesElements({ name: 'w', datatype: 'BYTES', shape: [3], data: data.subarray(0, 5) })]).toThrow(
      /only 1 follow/,
    );
    expect(() => [...bytesElements({ name: 'w', datatype: 'BYTES', shape: [3], data: data.subarray(0, 2) })]).toThrow(
      /4-byte length/,
    );
  });
});

describe('bytesOfNumbers', () => {
  it('bytesOfNumbers gives the bytes from which the elements of every type are read back', () => {
    for (const datatype of dataTypes) {
      if (datatype === 'BYTES') continue;
      const data = bytesOfNumbers(datatype, [0, 1, 100]);
      const bits = { FP16: [0, 0x3c00, 0x5640], BF16: [0, 0x3f80, 0x42c8] }[datatype as string];
      const found = Array.from(
        elements({ name: 'x', datatype, shape: [3], data }) as Iterable<number | bigint>,
        Number,
      );
      expect([datatype, found]).toEqual([datatype, bits ?? [0, 1, 100]]);
    }
  });

  it('clamps values outside of the 64-bit range', () => {
    const data = bytesOfNumbers('INT64', [2 ** 63, -(2 ** 63), -1]);
    const found = elements({ name: 'x', datatype: 'INT64', shape: [3], data });
    expect([...found]).toEqual([2n ** 63n - 1n, -(2n ** 63n), -1n]);
  });
});
