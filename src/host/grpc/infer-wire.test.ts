import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { arrayOf, packBytes, TensorError, type DataType } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import { modelSpec, type ModelSpec } from '../infer/model-spec.ts';
import { decodeInferMessage } from './infer-message.ts';
import { readInferRequest } from './infer-wire.ts';
import { loadProtos, serviceOf } from './protos.ts';

const { service } = serviceOf(loadProtos(), 'inference', 'GRPCInferenceService');
const serialize = (request: object): Buffer => service['ModelInfer']!.requestSerialize(request);
const ignore = (): void => undefined;

function specOf(datatype: DataType): ModelSpec {
  const [input, output] = ['x', 'y'].map((name) => ({ name, datatype, shape: [-1], dimensionNames: [undefined] }));
  const counts = { opset: 17, producer: '', nodeCount: 1, parameterCount: 0, weightBytes: 0 };
  return modelSpec({ inputs: [input!], outputs: [output!], ...counts });
}

const integers = (min: number, max: number) => fc.array(fc.integer({ min, max }), { maxLength: 20 });
const floats = (noun: 'float' | 'double') => fc.array(noun === 'float' ? fc.float() : fc.double(), { maxLength: 20 });

/** Lists of elements, the list that has them on the wire, and their bytes in a tensor. */
const kinds: readonly [DataType, string, fc.Arbitrary<readonly unknown[]>][] = [
  ['BOOL', 'bool_contents', fc.array(fc.boolean(), { maxLength: 20 })],
  ['INT8', 'int_contents', integers(-128, 127)],
  ['INT16', 'int_contents', integers(-32_768, 32_767)],
  ['INT32', 'int_contents', integers(-(2 ** 31), 2 ** 31 - 1)],
  ['INT64', 'int64_contents', fc.array(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), { maxLength: 20 })],
  ['UINT8', 'uint_contents', integers(0, 255)],
  ['UINT16', 'uint_contents', integers(0, 65_535)],
  ['UINT32', 'uint_contents', integers(0, 2 ** 32 - 1)],
  ['UINT64', 'uint64_contents', fc.array(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { maxLength: 20 })],
  ['FP32', 'fp32_contents', floats('float')],
  ['FP64', 'fp64_contents', floats('double')],
  ['BYTES', 'bytes_contents', fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 20 })],
];

function bytesOf(datatype: DataType, values: readonly unknown[]): Uint8Array {
  if (datatype === 'BYTES') return packBytes(values as Uint8Array[]);
  const made = new arrayOf[datatype as 'FP32'](values.length);
  for (const [at, value] of values.entries()) made[at] = (typeof value === 'boolean' ? Number(value) : value) as number;
  return new Uint8Array(made.buffer);
}

describe.each(kinds)('typed contents of %s', (datatype, field, lists) => {
  const spec = specOf(datatype);

  test('become the bytes of a tensor, which are told before', () => {
    fc.assert(
      fc.property(lists, (values) => {
        const wire = values.map((value) => (typeof value === 'bigint' ? String(value) : value));
        const input = { name: 'x', datatype, shape: [values.length], contents: { [field]: wire } };
        const request = readInferRequest(serialize({ inputs: [input] }));
        let told = 0;
        const { tensors } = decodeInferMessage(request, spec, (bytes) => (told += bytes));
        const expected = bytesOf(datatype, values);
        expect(Buffer.from(tensors[0]!.data).equals(expected)).toBe(true);
        expect(told).toBe(values.length === 0 ? 0 : expected.byteLength);
      }),
    );
  });
});

/** A request for one INT32 input of three elements. */
function withContents(write: (contents: BinaryWriter) => void): Uint8Array {
  const input = new BinaryWriter().tag(1, WireType.LengthDelimited).string('x');
  input.tag(2, WireType.LengthDelimited).string('INT32').tag(3, WireType.Varint).int64(3);
  write(input.tag(5, WireType.LengthDelimited).fork());
  return new BinaryWriter().tag(5, WireType.LengthDelimited).bytes(input.join().finish()).finish();
}

const decoded = (bytes: Uint8Array) => decodeInferMessage(readInferRequest(bytes), specOf('INT32'), ignore).tensors[0]!;

test('numbers one by one and packed, beside fields that are unknown, are one list', () => {
  const bytes = withContents((contents) => {
    contents.tag(2, WireType.Varint).int32(-7).tag(99, WireType.Bit32).fixed32(1);
    contents.tag(2, WireType.LengthDelimited).fork().int32(8).int32(-9).join();
  });
  expect(new Int32Array(decoded(bytes).data.slice().buffer)).toEqual(Int32Array.of(-7, 8, -9));
});

test.each([
  ['a number that does not end', [0x12, 1, 0x80], 'a number in typed contents does not end'],
  ['a number of 11 bytes', [0x12, 11, ...Array<number>(10).fill(0x80), 0], 'a number in typed contents does not end'],
  ['half a float', [0x32, 2, 0, 0], '2 bytes of fp32_contents end inside an element'],
  ['a list beyond the end', [0x12, 100, 0], 'premature EOF'],
])('contents with %s are no message', (_what, contents, reason) => {
  expect(() => readInferRequest(withContents((into) => into.raw(Uint8Array.from(contents))))).toThrow(reason);
});

test('a number that the datatype cannot hold is named with its place, however many come before it', () => {
  const values = Array<number>(100_000).fill(-1);
  values[99_999] = 128;
  const input = { name: 'x', datatype: 'INT8', shape: [values.length], contents: { int_contents: values } };
  const request = readInferRequest(serialize({ inputs: [input] }));
  expect(() => decodeInferMessage(request, specOf('INT8'), ignore)).toThrow(
    "input 'x': element 99999 is 128, which INT8 cannot hold",
  );
});

test.each(['inputs', 'outputs', 'raw_input_contents'])(
  'a request of 100,001 empty %s is refused before they are all read',
  (field) => {
    const entry = field === 'raw_input_contents' ? Buffer.alloc(0) : {};
    const bytes = serialize({ [field]: Array<unknown>(100_001).fill(entry) });
    expect(() => readInferRequest(bytes)).toThrow('it has more than 100000 inputs, outputs, parameters and dimensions');
    expect(readInferRequest(bytes.subarray(2)).entries).toBe(100_000);
  },
);

const list = <Item>(item: fc.Arbitrary<Item>) => fc.array(item, { maxLength: 3 });
const plain = (request: object): unknown => JSON.parse(JSON.stringify(request)) as unknown;

test('a request is what the library makes of it', () => {
  const names = fc.oneof(fc.string({ unit: 'grapheme', maxLength: 5 }), fc.constant('__proto__'));
  const value = fc.oneof(
    fc.record({ bool_param: fc.boolean() }),
    fc.record({ int64_param: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String) }),
    fc.record({ string_param: names }),
    fc.record({ double_param: fc.double({ noNaN: true }) }),
    fc.record({ uint64_param: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(String) }),
  );
  // The library cannot write a parameter of the name __proto__.
  const parameters = fc.dictionary(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 5 }), value, { maxKeys: 3 });
  const output = fc.record({ name: names, parameters });
  const input = fc.record({ name: names, datatype: names, parameters, shape: fc.array(fc.nat(), { maxLength: 4 }) });
  const raw = fc.uint8Array({ maxLength: 5 }).map((bytes) => Buffer.from(bytes));
  const anyRequest = fc.record({
    model_name: names,
    model_version: names,
    id: names,
    parameters,
    inputs: list(input),
    outputs: list(output),
    raw_input_contents: list(raw),
  });
  fc.assert(
    fc.property(anyRequest, (asked) => {
      const bytes = serialize(asked);
      const { entries: _entries, wire: _wire, ...ours } = readInferRequest(bytes);
      const theirs = service['ModelInfer']!.requestDeserialize(bytes) as typeof asked;
      const shapes = theirs.inputs.map((each) => ({ ...each, shape: each.shape.map(Number), contents: undefined }));
      expect(plain(ours)).toEqual(plain({ ...theirs, inputs: shapes }));
    }),
  );
});

test('no bytes make it fail otherwise than by an error', () => {
  const known = [...serialize({ model_name: 'm', inputs: [{ name: 'x', datatype: 'INT32', shape: [1] }] })];
  const changed = fc.array(fc.tuple(fc.nat(known.length - 1), fc.nat(255)), { maxLength: 4 }).map((changes) => {
    const bytes = Uint8Array.from(known);
    for (const [at, byte] of changes) bytes[at] = byte;
    return bytes;
  });
  fc.assert(
    fc.property(fc.oneof(fc.uint8Array({ maxLength: 60 }), changed), (bytes) => {
      expect(failureOf(bytes)).toMatch(/^(none|Error|RangeError|HostError|TensorError)$/);
    }),
  );
});

/** The kind of error that a message meets; another one than ours is one of the reader's, which the guard reports. */
function failureOf(bytes: Uint8Array): string {
  let request: ReturnType<typeof readInferRequest>;
  try {
    request = readInferRequest(bytes);
  } catch (error) {
    return (error as Error).name;
  }
  try {
    decodeInferMessage(request, specOf('INT32'), ignore);
    return 'none';
  } catch (error) {
    return error instanceof HostError || error instanceof TensorError ? error.name : `not ours: ${String(error)}`;
  }
}
