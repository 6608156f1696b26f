import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { valuesToJson } from '../../../test/support/tensor-json.ts';
import { bf16ToNumber, fp16ToNumber, numberToBf16, numberToFp16, runSteps, tensorOf } from '../../tensor/index.ts';
import { metadata, pairModel, spec } from '../../../test/host/fake-store.ts';
import { modelSpec, type ModelSpec } from './model-spec.ts';
import * as plain from './plain.ts';

const decodePlain = (body: Buffer, spec: ModelSpec): plain.PlainCall => runSteps(plain.decodePlain(body, spec));
const encodePlain = (...args: Parameters<typeof plain.encodePlain>): string =>
  runSteps(plain.encodePlain(...args)).join('');

const pair = modelSpec(pairModel);
const two = modelSpec(
  metadata(
    [spec('a', 'INT32', ['n']), spec('b', 'BYTES', ['n'])],
    [spec('c', 'FP16', ['n']), spec('d', 'BOOL', ['n'])],
  ),
);
const body = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

test('one input takes its shape from the nesting', () => {
  const call = decodePlain(body({ input: [[1, 2], [3, 4], [5, 6]] }), pair); // prettier-ignore
  expect(call).toMatchObject({ form: 'single', rows: 3 });
  expect(call.tensors[0]).toMatchObject({ name: 'x', datatype: 'FP32', shape: [3, 2] });
});

test('several inputs are named, and the reply names its outputs', () => {
  const call = decodePlain(body({ inputs: { b: ['u', 'v'], a: [1, -1] } }), two);
  expect(call.form).toBe('named');
  expect(call.tensors.map(valuesToJson)).toEqual([
    ['u', 'v'],
    [1, -1],
  ]);
  const outputs = [
    tensorOf('c', 'FP16', [2], Uint16Array.from([0x3c00, 0xc000])),
    tensorOf('d', 'BOOL', [2], Uint8Array.from([1, 0])),
  ];
  expect(JSON.parse(encodePlain(call.form, outputs))).toEqual({ outputs: { c: [1, -2], d: [true, false] } });
});

test("an empty array is a batch of 0 with the model's fixed sizes", () => {
  expect(decodePlain(body({ input: [] }), pair)).toMatchObject({ rows: 0, tensors: [{ shape: [0, 2] }] });
});

test('outputs keep their order, whatever their names', () => {
  const outputs = ['b', '2', '__proto__'].map((name) => tensorOf(name, 'FP32', [1], Float32Array.of(1)));
  expect(encodePlain('named', outputs)).toBe('{"outputs":{"b":[1],"2":[1],"__proto__":[1]}}\n');
});

test('a single output of a single input has no name in the reply', () => {
  const output = tensorOf('y', 'FP32', [2, 1], Float32Array.from([1, NaN]));
  expect(JSON.parse(encodePlain('single', [output]))).toEqual({ output: [[1], ['NaN']] });
});

describe('a call is refused with a sentence', () => {
  const cases: [string, unknown, RegExp][] = [
    ['a missing batch', { input: [1, 2] }, /'x' has the shape \[2\] without a batch; .* \[batch,2\]/],
    ['a wrong size', { input: [[1, 2, 3]] }, /'x' has 3 as dimension 1, but the model takes 2/],
    ['ragged rows', { input: [[1, 2], [3]] }, /'x': 'data' is ragged/],
    ['a number alone', { input: 3 }, /'x' has 0 dimensions/],
    ['text', { input: [['a', 'b']] }, /element 0 is "a"/],
    ['both forms', { input: [[1, 2]], inputs: {} }, /both 'input' and 'inputs'/],
    [
      'an input by its name alone',
      { x: [[1, 2]] },
      /the body names 'x' itself; inputs belong into 'inputs': \{"inputs": \{"x": \.\.\.\}\}/,
    ],
    [
      'the inputs of another protocol',
      { inputs: [{ name: 'x' }] },
      /'inputs' are no object such as \{"inputs": .*; an array, as in .* goes to \/v2/,
    ],
    ['inputs of another form', { inputs: 'x' }, /'inputs' are no object such as \{"inputs": \{"\w+": \.\.\.\}\}$/],
    ['no input', {}, /no 'input' or 'inputs', as in \{"input": ...\}/],
    [
      'another name',
      { ids: [[1, 2]] },
      /has 'ids', but no 'input' or 'inputs', as in \{"input": \.\.\.\} for \[batch,2\]/,
    ],
    ['an array', [1], /not an object such as/],
    ['an unknown name', { inputs: { z: [[1, 2]] } }, /no input 'z'; it has 'x'/],
    ['a missing name', { inputs: {} }, /input 'x' .* is missing/],
  ];
  test.each(cases)('a call is refused with a sentence for %s', (_what, value, sentence) => {
    expect(() => decodePlain(body(value), pair)).toThrow(sentence);
  });

  test('a call is refused with a sentence for an unknown name if the model has two inputs', () => {
    const form = 'the body has \'ids\', but no \'input\' or \'inputs\', as in {"inputs": {"a": ..., "b": ...}}';
    expect(() => decodePlain(body({ ids: [1] }), two)).toThrow(form);
  });

  test('a call is refused with a sentence for one input if the model has two', () => {
    expect(() => decodePlain(body({ input: [1] }), two)).toThrow("the model has 2 inputs: name 'a', 'b' in 'inputs'");
  });

  test('a call is refused with a sentence for nesting that is deeper than any tensor', () => {
    const deep = '['.repeat(50_000) + ']'.repeat(50_000);
    expect(() => decodePlain(Buffer.from(`{"input":${deep}}`), pair)).toThrow(
      /'x': 'data' is nested deeper than 16 dimensions/,
    );
    expect(() => decodePlain(Buffer.from(`{"input":[[1,${deep}]]}`), pair)).toThrow(/'x'/);
  });
});

describe('16-bit floats', () => {
  test('known values', () => {
    const known: [number, number][] = [
      [0x0000, 0],
      [0x3c00, 1],
      [0xc000, -2],
      [0x7bff, 65504],
      [0x0001, 2 ** -24],
      [0x0400, 2 ** -14],
      [0x3555, 0.333251953125],
    ];
    for (const [bits, value] of known) {
      expect(fp16ToNumber(bits)).toBe(value);
      expect(numberToFp16(value)).toBe(bits);
    }
    expect([fp16ToNumber(0x7c00), fp16ToNumber(0xfc00), fp16ToNumber(0x7e00)]).toEqual([Infinity, -Infinity, NaN]);
    expect([bf16ToNumber(0x3f80), bf16ToNumber(0xc000), numberToBf16(1)]).toEqual([1, -2, 0x3f80]);
  });

  test('every finite pattern survives as a number', () => {
    const patterns = Array.from({ length: 0x10000 }, (_, bits) => bits);
    const finite16 = patterns.filter((bits) => (bits & 0x7c00) !== 0x7c00);
    const finiteB16 = patterns.filter((bits) => (bits & 0x7f80) !== 0x7f80);
    expect(finite16.filter((bits) => numberToFp16(fp16ToNumber(bits)) !== bits)).toEqual([]);
    expect(finiteB16.filter((bits) => numberToBf16(bf16ToNumber(bits)) !== bits)).toEqual([]);
  });

  test('a number goes to the nearest pattern', () => {
    fc.assert(
      fc.property(fc.double({ min: -65504, max: 65504, noNaN: true }), (value) => {
        const bits = numberToFp16(value);
        const distance = Math.abs(fp16ToNumber(bits) - value);
        for (const other of [bits - 1, bits + 1]) {
          if (other < 0 || (other & 0x7c00) === 0x7c00) continue;
          expect(distance).toBeLessThanOrEqual(Math.abs(fp16ToNumber(other) - value));
        }
      }),
    );
  });
});
