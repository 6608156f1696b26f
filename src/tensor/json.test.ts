import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readTensor, tensorText, valuesToJson } from '../../test/support/tensor-json.ts';
import {
  arrayOf,
  dataTypes,
  elementBytes,
  elementCount,
  JsonText,
  packBytes,
  parseDocument,
  runInSlices,
  runSteps,
  TensorError,
  tensorFromJson,
  tensorOf,
  TextParts,
  writeTensor,
  type DataType,
  type JsonForm,
  type Tensor,
} from './index.ts';

const shapes = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 });

/** Any bits; NaN only in the one form that text can give back. */
function bitsOf(datatype: DataType, bytes: Uint8Array): Uint8Array {
  if (datatype === 'BOOL') return bytes.map((byte) => byte & 1);
  if (datatype === 'FP16' || datatype === 'BF16') {
    const values = new Uint16Array(bytes.slice().buffer);
    const [exponent, nan] = datatype === 'FP16' ? [0x7c00, 0x7e00] : [0x7f80, 0x7fc0];
    return new Uint8Array(values.map((bits) => ((bits & 0x7fff) > exponent ? nan : bits)).buffer);
  }
  if (datatype !== 'FP32' && datatype !== 'FP64') return bytes;
  const values = new arrayOf[datatype](bytes.slice().buffer);
  values.forEach((value, index) => {
    if (Number.isNaN(value)) values[index] = NaN;
  });
  return new Uint8Array(values.buffer);
}

/** Made once: fast-check goes through all characters for each arbitrary of this kind, a third of a second. */
const anyText = fc.string({ unit: 'binary' });
const tensors: fc.Arbitrary<Tensor> = fc.tuple(fc.constantFrom(...dataTypes), shapes).chain(([datatype, shape]) => {
  const count = elementCount(shape);
  const data =
    datatype === 'BYTES'
      ? fc.array(anyText, { minLength: count, maxLength: count }).map(packBytes)
      : fc
          .uint8Array({ minLength: count * elementBytes[datatype], maxLength: count * elementBytes[datatype] })
          .map((bytes) => bitsOf(datatype, bytes));
  return data.map((data): Tensor => ({ name: 'x', datatype, shape, data }));
});

test('every value of every datatype comes back bit for bit, flat and nested', () => {
  fc.assert(
    fc.property(tensors, fc.boolean(), (tensor, nested) => {
      const { datatype, shape, data } = tensor;
      const isNested = nested && shape.length > 0;
      const read = readTensor(datatype, shape, tensorText(tensor, isNested));
      expect([...read.data]).toEqual([...data]);
    }),
    { numRuns: 600 },
  );
});

test('an element of BYTES is read as JSON.parse reads it, or refused as it does', () => {
  const control = fc.integer({ min: 0, max: 0x1f }).map((code) => String.fromCodePoint(code));
  const plain = fc.constantFrom('a', 'é', '\u007F', '\u2028', '/', '😀', 'a'.repeat(100));
  const escaped = fc.constantFrom(
    ...['n', 'u0041', 'ud83d\\ude00', '"', '\\', '/', 'q', 'u00g0'].map((each) => `\\${each}`),
  );
  const pieces = fc.array(fc.oneof({ weight: 4, arbitrary: plain }, escaped, control), { maxLength: 4 });
  const strings = fc.array(pieces.map((each) => `"${each.join('')}"`), { minLength: 1, maxLength: 3 }); // prettier-ignore
  fc.assert(
    fc.property(strings, (elements) => {
      const text = `[${elements.join(', ')}]`;
      const read = (): unknown => [...readTensor('BYTES', [elements.length], text).data];
      expect(outcomeOf(read)).toEqual(outcomeOf(() => [...packBytes(JSON.parse(text) as string[])]));
    }),
    { numRuns: 500 },
  );
});

test.each([
  ['{"inputs": [{"data": ["é", "a\nb"]}]}', /^"\\nb.* at byte 30 is not expected there$/],
  ['{"inputs": [{"data": ["é\\t", "a\\qb"]}]}', /^Bad escaped character at byte 33$/],
  ['{"inputs": [{"data": ["é"], "name": "éa\nb"}]}', /^Bad control character in string literal at byte 41$/],
])('a fault within a string of %j is named by its place in the whole text', (text, message) => {
  const form: JsonForm = { members: new Map([['inputs', { items: { members: new Map([['data', 'tensor']]) } }]]) };
  const read = (): void => {
    const { inputs } = runSteps(parseDocument(Buffer.from(text), form)) as { inputs: { data: JsonText }[] };
    runSteps(tensorFromJson('x', 'BYTES', [2], inputs[0]!.data));
  };
  expect(read).toThrow(message);
});

test('written text is JSON, and reads as the same numbers', () => {
  fc.assert(
    fc.property(fc.array(fc.double(), { minLength: 1 }), (values) => {
      const tensor = tensorOf('x', 'FP64', [values.length], Float64Array.from(values));
      expect(valuesToJson(tensor).map(Number)).toEqual(values);
    }),
  );
});

test('numbers are read as JSON.parse reads them, in any spelling', () => {
  const digits = fc.stringMatching(/^(0|[1-9][0-9]{0,21})$/);
  const number = fc
    .tuple(
      fc.constantFrom('', '-'),
      digits,
      fc.stringMatching(/^(\.[0-9]{1,22})?$/),
      fc.stringMatching(/^([eE][+-]?[0-9]{1,3})?$/),
    )
    .map((parts) => parts.join(''));
  fc.assert(
    fc.property(fc.array(number, { minLength: 1, maxLength: 20 }), (spelled) => {
      const values = spelled.map(Number);
      const finite = spelled.filter((_, index) => Number.isFinite(values[index]));
      const wide = readTensor('FP64', [finite.length], `[${finite.join(' ,\n')}]`);
      expect(new Float64Array(wide.data.slice().buffer)).toEqual(Float64Array.from(finite, Number));
      const singles = spelled.filter((_, index) => Number.isFinite(Math.fround(values[index]!)));
      const narrow = readTensor('FP32', [singles.length], `[${singles.join()}]`);
      expect(new Float32Array(narrow.data.slice().buffer)).toEqual(Float32Array.from(singles, Number));
    }),
    { numRuns: 600 },
  );
});

test('64-bit integers keep every digit', () => {
  const wide = [2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n), 0n, -1n, 123456789012345n];
  const read = readTensor('INT64', [wide.length], `[${wide.join()}]`);
  expect([...new BigInt64Array(read.data.slice().buffer)]).toEqual(wide);
  expect(tensorText(read)).toBe(`[${wide.join()}]`);
  const unsigned = readTensor('UINT64', [1], '[18446744073709551615]');
  expect(tensorText(unsigned)).toBe('[18446744073709551615]');
});

test('NaN and infinities are read as strings and bare, and written as strings', () => {
  const read = readTensor('FP32', [6], '["NaN", NaN, "Infinity", Infinity, "-Infinity", -Infinity]');
  expect(tensorText(read)).toBe('["NaN","NaN","Infinity","Infinity","-Infinity","-Infinity"]');
  expect(tensorText(readTensor('FP16', [2], '[NaN, -Infinity]'))).toBe('["NaN","-Infinity"]');
});

test('the sign of zero is kept', () => {
  expect(tensorText(tensorOf('x', 'FP32', [2], Float32Array.of(-0, 0)))).toBe('[-0.0,0]');
});

describe('a tensor that cannot be read or written', () => {
  const cases: [string, DataType, readonly number[], string, RegExp][] = [
    ['text that is no number', 'FP32', [2], '[1, "nan"]', /'x': element 1 is "nan", which is not a value of FP32/],
    ['a number beyond its integer', 'INT8', [1], '[128]', /element 0 is 128, which is not a value of INT8/],
    ['a fraction', 'INT32', [1], '[1.5]', /element 0 is 1.5/],
    ['NaN as an integer', 'INT32', [1], '[NaN]', /element 0 is NaN/],
    ['null', 'INT64', [1], '[null]', /element 0 is null/],
    ['a negative number', 'UINT64', [1], '[-1]', /element 0 is -1/],
    ['2^63', 'INT64', [1], '[9223372036854775808]', /element 0 is 9223372036854775808/],
    ['an integer beyond 2^53 that is not written out', 'INT64', [1], '[1e17]', /beyond 2\^53; write all of its digits/],
    ['a number beyond FP32', 'FP32', [2], '[3.4e38, 1e39]', /element 1 is 1e39/],
    ['a number beyond FP16', 'FP16', [1], '[65520]', /element 0 is 65520/],
    ['a number beyond all', 'FP64', [1], '[1e400]', /element 0 is 1e400/],
    ['a number as text', 'BYTES', [1], '[7]', /element 0 is 7/],
    ['half of a character', 'BYTES', [1], String.raw`["\ud800"]`, /element 0 has half of a surrogate pair/],
    ['a number that is no boolean', 'BOOL', [1], '[2]', /element 0 is 2/],
    ['an object', 'FP32', [1], '[{}]', /element 0 is an object/],
    ['no array', 'FP32', [1], '7', /not an array/],
    ['ragged data', 'FP32', [2, 2], '[[1,2],[3]]', /shape \[2,2\]/],
    ['ragged data that is not nested at first', 'FP32', [2, 2], '[1,[2]]', /shape \[2,2\]/],
    ['deeper data', 'FP32', [1, 1], '[[[1]]]', /deeper than its shape \[1,1\]/],
    ['less data', 'FP32', [3], '[1,2]', /2 elements of data, but its shape \[3\] takes 3/],
    ['other nesting of as many', 'FP32', [2, 3], '[[1,2],[3,4],[5,6]]', /shape \[2,3\]/],
  ];
  test.each(cases)('%s is refused by tensor and element', (_what, datatype, shape, text, sentence) => {
    expect(() => readTensor(datatype, shape, text)).toThrow(sentence);
    expect(() => readTensor(datatype, shape, text)).toThrow(TensorError);
  });

  test('text that is not UTF-8 cannot be written', () => {
    const tensor: Tensor = { name: 'x', datatype: 'BYTES', shape: [2], data: packBytes(['a', Uint8Array.of(0xff)]) };
    expect(() => tensorText(tensor)).toThrow(/'x': element 1 is not UTF-8/);
  });
});

test('text that is not JSON is a SyntaxError', () => {
  const malformed = [
    '[1,,2]',
    '[1 2]',
    '[1,]',
    '[,1]',
    '[01]',
    '[.5]',
    '[+1]',
    '[1.]',
    '[1e]',
    '[--1]',
    '[tru]',
    '[1',
    '[1}',
  ];
  for (const text of malformed) {
    expect(() => readTensor('FP32', [1], text), text).toThrow(SyntaxError);
  }
});

/** The result, or the kind of error. */
function outcomeOf(work: () => unknown): unknown {
  try {
    return { value: work() };
  } catch (error) {
    return (error as Error).name;
  }
}

describe('a document around tensors', () => {
  const form: JsonForm = {
    members: new Map<string, JsonForm>([
      ['inputs', { items: { members: new Map([['data', 'tensor']]) } }],
      ['named', { values: 'tensor' }],
    ]),
  };
  const parse = (text: string): unknown => runSteps(parseDocument(Buffer.from(text), form));

  /** The value with the text of tensors parsed too. */
  const filled = (value: unknown): unknown => {
    if (value instanceof JsonText) return JSON.parse(value.bytes.toString('utf8', value.start, value.end)) as unknown;
    if (Array.isArray(value)) return value.map(filled);
    if (value instanceof Map) return Object.fromEntries([...value].map(([key, part]) => [key as string, filled(part)]));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, filled(part)]));
  };

  test('a document around tensors is parsed as JSON.parse does, or refused as it does', () => {
    const shaped = fc.record({
      inputs: fc.array(fc.record({ data: fc.jsonValue(), name: fc.jsonValue() })),
      named: fc.jsonValue(),
    });
    const text = fc.oneof(fc.jsonValue(), shaped).map((value) => JSON.stringify(value, undefined, 1));
    const broken = fc
      .tuple(text, fc.nat(), fc.constantFrom('', ',', ']', '}', '"', ':', '[', '1', '\\'))
      .map(
        ([whole, at, extra]) =>
          whole.slice(0, at % (whole.length + 1)) + extra + whole.slice((at % (whole.length + 1)) + 1),
      );
    fc.assert(
      fc.property(fc.oneof(text, broken), (text) => {
        // Errors inside a tensor show when it is read.
        expect(outcomeOf(() => filled(parse(text)))).toEqual(outcomeOf(() => JSON.parse(text) as unknown));
      }),
      { numRuns: 1000 },
    );
  });

  test('a document around tensors leaves tensors as text, and takes names as they are', () => {
    const parsed = parse('{"__proto__": 1, "named": {"__proto__": [1], "2": [2], "1": 3}}') as Record<string, unknown>;
    expect(Object.keys(parsed)).toEqual(['__proto__', 'named']);
    expect([...(parsed['named'] as Map<string, JsonText>).keys()]).toEqual(['__proto__', '2', '1']);
  });

  /** Whether the data of the first input stays text. */
  const isText = (text: string): boolean => {
    const { inputs } = parse(text) as { inputs: readonly [{ readonly data: unknown }] };
    return inputs[0].data instanceof JsonText;
  };

  test('a document around tensors leaves a tensor as text however its name is spelled, and in a short document too', () => {
    expect(isText('{"inputs":[{"data":[9007199254740993]}]}')).toBe(true);
    expect(isText(String.raw`{"inputs":[{"d\u0061ta":[9007199254740993]}]}`)).toBe(true);
    expect(isText(String.raw`{"\u0069nputs":[{"data":[9007199254740993]}]}`)).toBe(true);
  });

  test('a document around tensors that is nested a hundred thousand deep does not overflow the stack', () => {
    const deep = '['.repeat(100_000) + ']'.repeat(100_000);
    expect(() => readTensor('FP32', [1], deep)).toThrow(/deeper/);
    expect(() => readTensor('FP32', undefined, deep)).toThrow(/deeper than 16/);
    expect(() => parse(`{"other": ${deep}}`)).not.toThrow();
  });

  test('a document around tensors with long values other than tensors is refused, since those cannot be read in slices', () => {
    expect(() => parse(`{"other": [${'1,'.repeat(1_200_000)}1]}`)).toThrow(/over the 2097152 bytes/);
  });
});

test('long text is read and written in slices, between which other work runs', async () => {
  const count = 400_000;
  const values = Float32Array.from({ length: count }, (_, index) => Math.fround(index / 7));
  const text = tensorText(tensorOf('x', 'FP32', [count], values));
  const bytes = Buffer.from(text);
  let turns = 0;
  let counting = true;
  const turn = (): void => {
    turns++;
    if (counting) setImmediate(turn);
  };
  setImmediate(turn);
  const found = (await runInSlices(parseDocument(bytes, 'tensor'))) as JsonText;
  const tensor = await runInSlices(tensorFromJson('x', 'FP32', [count], found));
  counting = false;
  expect(turns).toBeGreaterThan(2);
  expect(new Float32Array(tensor.data.buffer, 0, count)).toEqual(values);
});

test('a tensor whose bytes are not aligned becomes text without a copy of all of it', () => {
  const count = 8 * 2 ** 20;
  const data = Buffer.allocUnsafeSlow(4 * count + 1).subarray(1);
  data.fill(0);
  const into = new TextParts(Infinity, () => new Error('too much'));
  const steps = writeTensor(into, { name: 'x', datatype: 'FP32', shape: [count], data }, false);
  const beforeBytes = process.memoryUsage().arrayBuffers;
  steps.next();
  expect(process.memoryUsage().arrayBuffers - beforeBytes).toBeLessThan(2 ** 20);
});

/** As texts: Vitest compares arrays element by element, which takes a second of a core for a few hundred thousand. */
function expectSameJson(text: string, values: readonly unknown[]): void {
  expect(JSON.stringify(JSON.parse(text))).toBe(JSON.stringify(values));
}

test.each([
  ['numbers', Array.from({ length: 100_000 }, () => 0.123456789)],
  ['strings with brackets', Array.from({ length: 60_000 }, () => ']"[{\\')],
  ['arrays', Array.from({ length: 50_000 }, () => [[1, 2], [3]])],
])('a megabyte of %s is passed over in steps', (_, values) => {
  const bytes = Buffer.from(JSON.stringify({ data: values, id: 7 }));
  const steps = parseDocument(bytes, { members: new Map<string, JsonForm>([['data', 'tensor']]) });
  let count = 0;
  let step = steps.next();
  for (; step.done !== true; step = steps.next()) count++;
  expect(count).toBeGreaterThanOrEqual(Math.floor(bytes.byteLength / 65_536) - 1);
  const { data, id } = step.value as { data: JsonText; id: number };
  expect(id).toBe(7);
  expectSameJson(bytes.toString('utf8', data.start, data.end), values);
});

test('rows of any lengths, strings and objects between them are passed over whole', () => {
  const row = fc.integer({ min: 0, max: 20_000 }).map((length) => Array.from({ length }, (_, at) => at / 8));
  const item = fc.oneof(row, fc.constantFrom<unknown>('][', '\\"]', { of: [1, '}'] }, [], [[2]], 3));
  fc.assert(
    fc.property(fc.array(item, { maxLength: 12 }), fc.nat(9), (values, indent) => {
      const bytes = Buffer.from(JSON.stringify({ data: values, id: 7 }, null, indent % 3));
      const document = runSteps(parseDocument(bytes, { members: new Map<string, JsonForm>([['data', 'tensor']]) }));
      const { data, id } = document as { data: JsonText; id: number };
      expect(id).toBe(7);
      expectSameJson(bytes.toString('utf8', data.start, data.end), values);
      // Without its last bracket the text ends in the middle of a value.
      const cut = bytes.subarray(0, data.end - 1);
      const passed = (): unknown => runSteps(parseDocument(cut, { members: new Map([['data', 'tensor']]) }));
      expect(passed).toThrow(SyntaxError);
    }),
    { numRuns: 40 },
  );
});

test.each([
  [[3], [1, 2]],
  [[3], [1, 2, 3, 4]],
  [[1, 3], [[1, 2, 3, 4, 5]]],
  [[0], [1]],
  [
    [2, 2],
    [
      [1, 2, 3],
      [4, 5, 6],
    ],
  ],
])('data that is not of the shape %j is refused, not cut: %j', (shape, values) => {
  for (const datatype of ['FP32', 'INT64', 'BOOL'] as const) {
    const text = JSON.stringify(
      datatype === 'BOOL' ? JSON.parse(JSON.stringify(values).replaceAll(/\d/g, '1')) : values,
    );
    const read = (): Tensor =>
      runSteps(tensorFromJson('x', datatype, shape, new JsonText(Buffer.from(text), 0, text.length)));
    expect(read).toThrow(/has \d elements of data, but its shape|does not have the shape/);
  }
});

test.each<DataType>(['UINT8', 'FP32', 'INT64', 'FP64', 'BYTES'])(
  'the bytes of %s elements are told before they are read, and not many more',
  (datatype) => {
    const count = 100_000;
    const text = JSON.stringify(Array.from({ length: count }, () => (datatype === 'BYTES' ? 'word' : 7)));
    const json = (): JsonText => new JsonText(Buffer.from(text), 0, text.length);
    let told = 0;
    const { data } = runSteps(tensorFromJson('x', datatype, [count], json(), (bytes) => (told += bytes)));
    expect(told).toBeGreaterThanOrEqual(data.byteLength * 0.85);
    expect(told).toBeLessThan(data.byteLength * 1.1);
    expect(() => runSteps(tensorFromJson('x', datatype, [count], json(), refuse))).toThrow('no room');
  },
);

function refuse(): never {
  throw new RangeError('no room');
}
