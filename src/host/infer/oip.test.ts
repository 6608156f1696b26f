import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { valuesToJson } from '../../../test/support/tensor-json.ts';
import { arrayOf, bytesToKeep, dataTypes, packBytes, runSteps, TensorError, tensorOf } from '../../tensor/index.ts';
import type { DataType, Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { ModelMetadata, TensorSpec } from '../types.ts';
import { modelSpec, type ModelSpec } from './model-spec.ts';
import * as oip from './oip.ts';
import { parseHeaderLength, type InferCall } from './oip.ts';
import * as oipReply from './answer.ts';

/** Made once: fast-check goes through all characters for each arbitrary of this kind, a third of a second. */
const anyText = fc.string({ unit: 'binary' });
const decodeInfer = (body: Buffer, headerLength: number | undefined, spec: ModelSpec): InferCall =>
  runSteps(oip.decodeInfer(body, headerLength, spec));
const encodeInfer = (...args: Parameters<typeof oipReply.encodeInfer>): oipReply.InferReply =>
  runSteps(oipReply.encodeInfer(...args));

function spec(name: string, datatype: DataType, shape: readonly (number | string)[]): TensorSpec {
  return {
    name,
    datatype,
    shape: shape.map((size) => (typeof size === 'number' ? size : -1)),
    dimensionNames: shape.map((size) => (typeof size === 'number' ? undefined : size)),
  };
}

function metadata(inputs: readonly TensorSpec[], outputs: readonly TensorSpec[]): ModelMetadata {
  return { inputs, outputs, opset: 17, producer: '', nodeCount: 1, parameterCount: 0, weightBytes: 0 };
}

const pair = modelSpec(metadata([spec('x', 'FP32', ['batch', 2])], [spec('y', 'FP32', ['batch', 2])]));
const bert = modelSpec(
  metadata(
    [spec('ids', 'INT64', ['batch', 'sequence']), spec('mask', 'INT64', ['batch', 'sequence'])],
    [spec('hidden', 'FP32', ['batch', 'sequence', 4]), spec('pooled', 'FP16', ['batch', 4])],
  ),
);
const words = modelSpec(metadata([spec('text', 'BYTES', ['batch'])], [spec('y', 'FP32', ['batch'])]));

function json(value: unknown): Buffer {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
}

function withBinary(header: unknown, ...data: Uint8Array[]): [Buffer, number] {
  const head = json(header);
  return [Buffer.concat([head, ...data]), head.byteLength];
}

const floats = (...values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);

const good = { inputs: [{ name: 'x', shape: [1, 2], datatype: 'FP32', data: [1, 2] }] };

/** The request with one field of its input replaced. */
function altered(changes: Record<string, unknown>): unknown {
  return { inputs: [{ ...good.inputs[0], ...changes }] };
}

describe('a request is decoded', () => {
  test('a request is decoded from JSON, flat or nested', () => {
    expect(decodeInfer(json(altered({ shape: [0, 2], data: [] })), undefined, pair)).toMatchObject({ rows: 0 });
    for (const data of [
      [1, 2, 3, 4],
      [
        [1, 2],
        [3, 4],
      ],
    ]) {
      const call = decodeInfer(json(altered({ shape: [2, 2], data })), undefined, pair);
      expect(call.tensors.map(valuesToJson)).toEqual([[1, 2, 3, 4]]);
      expect(call.rows).toBe(2);
    }
  });

  test('a request is decoded from JSON followed by binary data, without a copy', () => {
    const [body, length] = withBinary(
      altered({ data: undefined, parameters: { binary_data_size: 8 } }),
      floats(0.5, -3),
    );
    const call = decodeInfer(body, length, pair);
    expect(call.tensors.map(valuesToJson)).toEqual([[0.5, -3]]);
    expect(call.tensors[0]?.data.buffer).toBe(body.buffer);
  });

  test('a request is decoded from a mixture of JSON and binary inputs in any order', () => {
    const ids = new Uint8Array(BigInt64Array.from([5n, 6n]).buffer);
    const [body, length] = withBinary(
      {
        inputs: [
          { name: 'mask', shape: [1, 2], datatype: 'INT64', data: [1, 0] },
          { name: 'ids', shape: [1, 2], datatype: 'INT64', parameters: { binary_data_size: 16 } },
        ],
      },
      ids,
    );
    const call = decodeInfer(body, length, bert);
    expect(Object.fromEntries(call.tensors.map((tensor) => [tensor.name, valuesToJson(tensor)]))).toEqual({
      mask: [1, 0],
      ids: [5, 6],
    });
  });

  test('a request is decoded by a header seen before, with the data that comes with it now, and with the same refusals', () => {
    const header = altered({ data: undefined, parameters: { binary_data_size: 8 } });
    for (const values of [
      [0.5, -3],
      [7, 8],
    ]) {
      const [body, length] = withBinary(header, floats(...values));
      const call = decodeInfer(body, length, pair);
      expect(call).toMatchObject({ rows: 1, id: undefined, outputs: undefined, binary: { byDefault: false } });
      expect(call.tensors.map(valuesToJson)).toEqual([values]);
    }
    for (const values of [[1], [1, 2, 3]]) {
      const [body, length] = withBinary(header, floats(...values));
      expect(() => decodeInfer(body, length, pair)).toThrow(/bytes are left in the body|bytes follow the data/);
    }
    const [body, length] = withBinary(header, floats(1, 2));
    expect(() => decodeInfer(body, length, bert)).toThrow("the model has no input 'x'");
  });

  test('a request is decoded by a header that contains some of the data, whatever follows it the second time', () => {
    const ids = { name: 'ids', shape: [1, 2], datatype: 'INT64', parameters: { binary_data_size: 16 } };
    const header = { inputs: [{ name: 'mask', shape: [1, 2], datatype: 'INT64', data: [1, 0] }, ids] };
    const [body, length] = withBinary(header, new Uint8Array(16));
    expect(decodeInfer(body, length, bert).tensors.map(valuesToJson)).toEqual([
      [1, 0],
      [0, 0],
    ]);
    const [longer] = withBinary(header, new Uint8Array(32));
    expect(() => decodeInfer(longer, length, bert)).toThrow('16 bytes follow the data of the last input');
  });

  test('a request is decoded with a byte order mark before the JSON', () => {
    expect(decodeInfer(Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), json(good)]), undefined, pair).rows).toBe(1);
  });

  test('a request is decoded with its id, parameters and outputs', () => {
    const call = decodeInfer(
      json({
        ...good,
        id: 'a1',
        parameters: { timeout: 2500, priority: 3, binary_data_output: true, colour: 'blue' },
        outputs: [{ name: 'y', parameters: { binary_data: false } }],
      }),
      undefined,
      pair,
    );
    expect(call).toMatchObject({ id: 'a1', timeoutMs: 2.5, priority: 3, outputs: ['y'] });
    expect(call.binary.byDefault).toBe(true);
    expect(call.binary.byName?.get('y')).toBe(false);
  });

  test('a request is decoded with 0 as timeout and priority for the default, and an empty list of outputs for all of them', () => {
    const call = decodeInfer(json({ ...good, parameters: { timeout: 0, priority: 0 }, outputs: [] }), undefined, pair);
    expect([call.timeoutMs, call.priority, call.outputs]).toEqual([undefined, undefined, undefined]);
  });

  test('a request is decoded from raw bytes for a model with one input, as a batch of 1, answered in binary', () => {
    const call = decodeInfer(Buffer.from(floats(1, 2)), 0, pair);
    expect(call.tensors[0]?.shape).toEqual([1, 2]);
    expect(call.binary.byDefault).toBe(true);
  });

  test('a request is decoded from raw bytes whose number gives the one other varying size', () => {
    const sequence = modelSpec(metadata([spec('x', 'FP32', ['batch', 'time', 2])], [spec('y', 'FP32', ['batch'])]));
    expect(decodeInfer(Buffer.from(floats(1, 2, 3, 4, 5, 6)), 0, sequence).tensors[0]?.shape).toEqual([1, 3, 2]);
  });

  test('a request is decoded from raw bytes as the one element of a BYTES input', () => {
    const call = decodeInfer(Buffer.from('Où'), 0, words);
    expect(call.tensors.map(valuesToJson)).toEqual([['Où']]);
  });
});

function described(size: number): unknown {
  return altered({ data: undefined, parameters: { binary_data_size: size } });
}

/** Decodes `bytes` bytes of data that the header describes as `size` bytes. */
function decodeSized(size: number, bytes: number): () => InferCall {
  const [body, length] = withBinary(described(size), new Uint8Array(bytes));
  return () => decodeInfer(body, length, pair);
}

function bytesOf({ parts: [json, ...payload] }: oipReply.InferReply): Buffer {
  return Buffer.concat([Buffer.from(json), ...payload.map(bytesToKeep)]);
}

/** [what is wrong, request, message] */
const refused: [string, unknown, RegExp][] = [
  ['no inputs', {}, /no 'inputs' that is an array/],
  ['inputs that are no array', { inputs: {} }, /no 'inputs' that is an array/],
  ['an input that is no object', { inputs: [1] }, /entry of 'inputs' is not an object/],
  ['an input without a name', { inputs: [{}] }, /has no 'name'/],
  ['an unknown input', altered({ name: 'z' }), /no input 'z'; it has 'x'/],
  ['a missing input', { inputs: [] }, /input 'x' \(FP32 \[batch,2\]\) is missing/],
  ['an input twice', { inputs: [good.inputs[0], good.inputs[0]] }, /'x' is given twice/],
  ['another datatype', altered({ datatype: 'FP64' }), /'x' has the datatype 'FP64', but the model takes FP32/],
  ['no datatype', altered({ datatype: undefined }), /'x' has no datatype/],
  ['no shape', altered({ shape: undefined }), /'x' has no 'shape'/],
  ['another rank', altered({ shape: [2] }), /'x' has 1 dimension, but the model takes 2 dimensions \[batch,2\]/],
  ['another fixed size', altered({ shape: [1, 3] }), /'x' has 3 as dimension 1, but the model takes 2/],
  ['data where a size is 0', altered({ shape: [0, 2] }), /'x' has 2 elements of data, but its shape \[0,2\] takes 0/],
  ['a negative size', altered({ shape: [-1, 2] }), /'x' has -1 as dimension 0/],
  ['a fractional size', altered({ shape: [1.5, 2] }), /'x' has 1.5 as dimension 0/],
  ['a size as text', altered({ shape: ['1', 2] }), /'x' has '1' as dimension 0/],
  ['a size beyond any memory', altered({ shape: [2 ** 52, 2] }), /beyond any memory/],
  ['a huge size', altered({ shape: [2 ** 40, 2] }), /has 2 elements of data, but its shape/],
  ['too few elements', altered({ data: [1] }), /'x' has 1 elements of data/],
  ['ragged data', altered({ shape: [2, 2], data: [[1, 2], [3]] }), /'x': 'data' does not have the shape/],
  ['text among numbers', altered({ data: [1, 'nan'] }), /'x': element 1 is "nan"/],
  ['null among numbers', altered({ data: [1, null] }), /'x': element 1 is null/],
  ['no data', altered({ data: undefined }), /'x' has neither 'data' nor a binary_data_size/],
  [
    'binary data without a header length',
    altered({ data: undefined, parameters: { binary_data_size: 8 } }),
    /no header/,
  ],
  ['both kinds of data', altered({ parameters: { binary_data_size: 8 } }), /both 'data' and a binary_data_size/],
  [
    'a negative binary size',
    altered({ data: undefined, parameters: { binary_data_size: -1 } }),
    /not a number of bytes/,
  ],
  ['shared memory', altered({ parameters: { shared_memory_region: 'r' } }), /'x' asks for shared memory/],
  ['parameters that are no object', altered({ parameters: 3 }), /'parameters' of input 'x'/],
  ['an id that is no text', { ...good, id: 7 }, /'id' is not a string/],
  ['a fractional timeout', { ...good, parameters: { timeout: 0.5 } }, /'timeout' is not a whole number/],
  ['a negative priority', { ...good, parameters: { priority: -1 } }, /'priority' is not a whole number/],
  ['a sequence', { ...good, parameters: { sequence_id: 4 } }, /'sequence_id' is not supported/],
  ['a binary_data_output that is no boolean', { ...good, parameters: { binary_data_output: 1 } }, /not true or false/],
  ['an unknown output', { ...good, outputs: [{ name: 'z' }] }, /no output 'z'; it has 'y'/],
  ['an output twice', { ...good, outputs: [{ name: 'y' }, { name: 'y' }] }, /'y' is asked for twice/],
  [
    'a classification that is no number',
    { ...good, outputs: [{ name: 'y', parameters: { classification: 'two' } }] },
    /'classification' is not a whole number/,
  ],
  ['outputs that are no array', { ...good, outputs: 'y' }, /'outputs' is not an array/],
  ['an array', [], /not an object/],
  ['bare text', '{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,nan]}]}', /the body is not JSON/],
  ['nothing', '', /the body is empty/],
];

describe('a request is refused with a sentence', () => {
  test.each(refused)('a request is refused with a sentence for %s', (_what, request, sentence) => {
    expect(() => decodeInfer(json(request), undefined, pair)).toThrow(sentence);
  });

  test('a request is refused with a sentence for bare NaN outside of tensors, with its own code', () => {
    const error = thrownBy(() => decodeInfer(Buffer.from('{"a":NaN}'), undefined, pair));
    expect(error).toMatchObject({ code: 'bad-json', status: 400 });
  });

  test('a request is refused with a sentence for bytes that are not UTF-8', () => {
    expect(() => decodeInfer(Buffer.from([0x22, 0xff, 0x22]), undefined, pair)).toThrow(/not UTF-8/);
  });

  test('a request is refused with a sentence for binary data that is cut short, too long, or followed by more', () => {
    expect(decodeSized(8, 7)).toThrow("input 'x' has a binary_data_size of 8, but only 7 bytes are left in the body");
    expect(decodeSized(12, 12)).toThrow("tensor 'x' has 12 bytes of data, but FP32 of shape [1,2] takes 8");
    expect(decodeSized(8, 9)).toThrow('1 bytes follow the data of the last input');
  });

  test('a request is refused with a sentence for a header length beyond the body, or one that is not a number', () => {
    expect(() => decodeInfer(json(good), 10_000, pair)).toThrow(/Inference-Header-Content-Length is 10000, but/);
    for (const text of ['-1', '1.5', 'x', '', '0x10', ' 5']) expect(() => parseHeaderLength(text)).toThrow(HostError);
  });

  test('a request is refused with a sentence for raw bytes of the wrong number, or for a model with two inputs', () => {
    expect(() => decodeInfer(Buffer.alloc(9), 0, pair)).toThrow(
      /has 9 bytes of data, but FP32 of shape \[1,2\] takes 8/,
    );
    expect(() => decodeInfer(Buffer.alloc(8), 0, bert)).toThrow(/only a model with one input takes/);
  });

  test('a request is refused with a sentence for data nested a hundred thousand deep, without overflowing the stack', () => {
    const deep = '['.repeat(100_000) + ']'.repeat(100_000);
    for (const data of [deep, `[1,${deep}]`, `[[1,${deep}]]`]) {
      const body = `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":${data}}],"id":"a"}`;
      expect(thrownBy(() => decodeInfer(Buffer.from(body), undefined, pair))).toBeInstanceOf(TensorError);
    }
    expect(
      decodeInfer(Buffer.from(`${JSON.stringify(good).slice(0, -1)},"other":${deep}}`), undefined, pair).rows,
    ).toBe(1);
  });

  test('a request is refused with a sentence for a million inputs at the first one too many', () => {
    const inputs = Array.from({ length: 100_000 }, () => good.inputs[0]);
    expect(() => decodeInfer(json({ inputs }), undefined, pair)).toThrow(/given twice/);
  });
});

test('for any bytes, only HostError and TensorError are thrown', () => {
  const anyBody = fc.oneof(
    fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
    fc.json().map((text) => Buffer.from(text)),
    fc
      .record(
        {
          id: fc.anything(),
          parameters: fc.anything(),
          inputs: fc.oneof(
            fc.anything(),
            fc.array(
              fc.record(
                {
                  name: fc.constantFrom('x', 'y', 'toString', '__proto__'),
                  shape: fc.oneof(fc.anything(), fc.array(fc.integer({ min: -2, max: 4 }), { maxLength: 3 })),
                  datatype: fc.constantFrom('FP32', 'INT64', 'BYTES', 'constructor', 3),
                  data: fc.anything(),
                  parameters: fc.oneof(fc.anything(), fc.record({ binary_data_size: fc.anything() })),
                },
                { requiredKeys: [] },
              ),
            ),
          ),
          outputs: fc.anything(),
        },
        { requiredKeys: [] },
      )
      .map((value) => Buffer.from(stringify(value))),
  );
  fc.assert(
    fc.property(anyBody, fc.option(fc.nat(250), { nil: undefined }), (body, headerLength) => {
      const error = thrownBy(() => decodeInfer(body, headerLength, pair));
      expect(error === undefined || error instanceof HostError || error instanceof TensorError).toBe(true);
      expect(error instanceof Error ? error.message.length : 0).toBeLessThan(400);
    }),
    { numRuns: 200 },
  );
});

const shaped = fc
  .constantFrom(...dataTypes)
  .chain((datatype) =>
    fc
      .tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 3 }))
      .chain(([rows, columns]) => tensorArbitrary(datatype, [rows, columns])),
  );

test('an encoded reply decodes to the same tensors as a request', () => {
  fc.assert(
    fc.property(shaped, fc.boolean(), fc.string(), (tensor, binary, id) => {
      const model = modelSpec(
        metadata([spec('t', tensor.datatype, ['a', 'b'])], [spec('t', tensor.datatype, ['a', 'b'])]),
      );
      const reply = encodeInfer({ name: 'm', version: '1' }, { id, binary: { byDefault: binary, byName: undefined } }, [
        tensor,
      ]);
      const bytes = bytesOf(reply);
      const header = JSON.parse(bytes.subarray(0, reply.headerLength).toString()) as Record<string, unknown>;
      expect(header).toMatchObject({ id, model_name: 'm', model_version: '1' });
      const request = Buffer.from(JSON.stringify({ id, inputs: header['outputs'] }));
      const payload = reply.headerLength === undefined ? Buffer.alloc(0) : bytes.subarray(reply.headerLength);
      const call = decodeInfer(
        Buffer.concat([request, payload]),
        reply.headerLength === undefined ? undefined : request.byteLength,
        model,
      );
      const [decoded] = call.tensors;
      expect(decoded?.shape).toEqual(tensor.shape);
      expect(Buffer.from(decoded?.data ?? []).equals(tensor.data)).toBe(true);
    }),
    { numRuns: 150 },
  );
});

describe('a reply', () => {
  const call: Pick<InferCall, 'id' | 'binary'> = {
    id: undefined,
    binary: { byDefault: false, byName: undefined },
  };
  const hidden = tensorOf('hidden', 'FP32', [1, 1, 4], Float32Array.from([1, 2, 3, 4]));
  const pooled = tensorOf('pooled', 'FP16', [1, 4], Uint16Array.from([0x3c00, 0, 0, 0]));

  test('a reply sends FP16 as JSON, and as binary on request', () => {
    const model = { name: 'm', version: '1' };
    expect(JSON.parse(bytesOf(encodeInfer(model, call, [hidden, pooled])).toString())).toMatchObject({
      outputs: [
        { name: 'hidden', datatype: 'FP32', shape: [1, 1, 4], data: [1, 2, 3, 4] },
        { name: 'pooled', datatype: 'FP16', shape: [1, 4], data: [1, 0, 0, 0] },
      ],
    });
    const reply = encodeInfer(model, { ...call, binary: { byDefault: false, byName: new Map([['pooled', true]]) } }, [
      hidden,
      pooled,
    ]);
    const bytes = bytesOf(reply);
    expect(JSON.parse(bytes.subarray(0, reply.headerLength).toString())).toMatchObject({
      outputs: [
        { name: 'hidden', data: [1, 2, 3, 4] },
        { name: 'pooled', parameters: { binary_data_size: 8 } },
      ],
    });
    expect(bytes.subarray(reply.headerLength).equals(pooled.data)).toBe(true);
  });

  test('refers to large tensors without copying them', () => {
    const large = tensorOf('hidden', 'FP32', [1, 25_000, 4], new Float32Array(100_000));
    const reply = encodeInfer(
      { name: 'm', version: '1' },
      { ...call, binary: { byDefault: true, byName: undefined } },
      [large],
    );
    expect(reply.parts[1]).toBe(large.data);
  });

  test('a reply is refused if its JSON is over the limit', () => {
    const long = tensorOf('hidden', 'FP32', [1, 25_000, 4], new Float32Array(100_000).fill(1 / 3));
    const error = thrownBy(() => encodeInfer({ name: 'm', version: '1' }, call, [long], 1_000_000));
    expect(error).toMatchObject({ code: 'reply-too-large', status: 413 });
  });

  test('a reply writes values that JSON cannot hold as strings', () => {
    const odd = tensorOf('y', 'FP32', [1, 2], Float32Array.from([NaN, -Infinity]));
    const reply = encodeInfer({ name: 'm', version: '1' }, call, [odd]);
    expect(bytesOf(reply).toString()).toContain('["NaN","-Infinity"]');
  });
});

function tensorArbitrary(datatype: DataType, shape: readonly number[]): fc.Arbitrary<Tensor> {
  const count = shape.reduce((product, size) => product * size, 1);
  if (datatype === 'BYTES') {
    return fc
      .array(anyText, { minLength: count, maxLength: count })
      .map((elements): Tensor => ({ name: 't', datatype, shape, data: packBytes(elements) }));
  }
  const element =
    datatype === 'BOOL'
      ? fc.constantFrom(0, 1)
      : datatype === 'FP32' || datatype === 'FP64'
        ? fc.float()
        : datatype === 'FP16' || datatype === 'BF16'
          ? fc.nat(0x7c00)
          : fc.nat(100);
  return fc.array(element, { minLength: count, maxLength: count }).map((elements): Tensor => {
    const wide = datatype === 'INT64' || datatype === 'UINT64';
    const values = new arrayOf[datatype](count);
    for (const [index, value] of elements.entries()) {
      if (wide) (values as BigInt64Array)[index] = BigInt(value);
      // JSON.stringify of the test loses the sign of zero; json.test.ts tests it.
      else (values as Float64Array)[index] = Object.is(value, -0) ? 0 : value;
    }
    return { name: 't', datatype, shape, data: new Uint8Array(values.buffer) };
  });
}

function thrownBy(work: () => unknown): unknown {
  try {
    work();
    return undefined;
  } catch (error) {
    return error;
  }
}

/** JSON of any value, without the parts that JSON cannot hold. */
function stringify(value: unknown): string {
  try {
    return JSON.stringify(value, (_key, part: unknown) => (typeof part === 'bigint' ? Number(part) : part)) ?? 'null';
  } catch {
    return 'null';
  }
}
