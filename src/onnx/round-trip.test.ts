import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import fc from 'fast-check';
import { InferenceSession } from 'onnxruntime-node';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { GraphBuilder } from './builder.ts';
import { parseModel } from './read.ts';
import { schemaOf, type FieldSchema, type MessageSchema } from './schema.ts';
import { AttributeType, ElementType, type GraphProto, type ModelProto } from './types.ts';
import { decode, WireSource } from './wire-read.ts';
import { encode } from './wire-write.ts';
import { serializeModel } from './write.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-onnx-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

/** Makes a message with every field of the schema set, to a depth, from a counter. */
function filled(schema: MessageSchema, depth: number, next: () => number): Record<string, unknown> {
  const value = (field: FieldSchema): unknown => {
    const number = next();
    switch (field.type) {
      case 'int32':
        return number;
      case 'int64':
      case 'uint64':
        return BigInt(number) * 4_294_967_311n;
      case 'float':
      case 'double':
        return number + 0.5;
      case 'bytes':
        return Uint8Array.of(number % 256, 0, 255);
      case 'string':
        return `ü${number}`;
      case undefined:
        return filled(field.message!, depth - 1, next);
    }
  };
  const message: Record<string, unknown> = {};
  for (const field of schema.fields) {
    if (field.message !== undefined && depth === 0) {
      if (field.presence === 'list') message[field.name] = [];
      continue;
    }
    message[field.name] = field.repeated ? [value(field), value(field)] : value(field);
  }
  return message;
}

describe('the schema', () => {
  test('every field of every message survives a write and a read', () => {
    let count = 0;
    const model = filled(schemaOf('ModelProto'), 7, () => ++count) as unknown as ModelProto;
    const bytes = encode('ModelProto', model);
    expect(decode('ModelProto', WireSource.ofBytes(bytes)).message).toEqual(model);
    expect(count).toBeGreaterThan(1000);
  });

  test('a model that ONNX Runtime wrote reads into the right fields, all of them known', async () => {
    const path = join(folder, 'optimized.onnx');
    await InferenceSession.create(serializeModel(everyAttribute()), {
      graphOptimizationLevel: 'basic',
      optimizedModelFilePath: path,
    });
    const model = parseModel(await readFile(path));
    expect(unknownFieldsIn(model)).toEqual([]);
    expect(parseModel(serializeModel(model))).toEqual(model);
    expect(model.irVersion).toBeGreaterThanOrEqual(8n);
    expect(model.opsetImport).toContainEqual({ domain: '', version: 17n });
    expect(model.producerName).toBe('turntable');
    expect(model.graph.name).toBe('every');
    expect(model.graph.input.map(({ name, type }) => [name, type?.tensorType?.elemType])).toEqual([
      ['x', ElementType.FLOAT],
      ['condition', ElementType.BOOL],
    ]);
    expect(model.graph.initializer.find(({ name }) => name === 'w')?.dims).toEqual([2n, 4n]);
    const named = (opType: string) => model.graph.node.find((node) => node.opType === opType);
    const [chosen, leaky, transpose] = [named('If'), named('LeakyRelu'), named('Transpose')];
    expect(chosen?.attribute.map(({ name, type, g }) => [name, type, g?.node[0]?.opType]).toSorted()).toEqual([
      ['else_branch', AttributeType.GRAPH, 'Neg'],
      ['then_branch', AttributeType.GRAPH, 'Relu'],
    ]);
    expect(leaky?.attribute).toEqual([{ name: 'alpha', type: AttributeType.FLOAT, f: 0.25 }]);
    expect(transpose?.attribute).toEqual([{ name: 'perm', type: AttributeType.INTS, ints: [1n, 0n] }]);
  });

  test('ONNX Runtime accepts a model that sets the rarer fields', async () => {
    const model = everyAttribute();
    model.graph.docString = 'a graph';
    model.graph.metadataProps = [{ key: 'k', value: 'v' }];
    model.graph.node[0]!.metadataProps = [{ key: 'k', value: 'v' }];
    model.metadataProps = [{ key: 'author', value: 'someone' }];
    await expect(InferenceSession.create(serializeModel(model))).resolves.toBeDefined();
  });
});

function branch(name: string, op: string): GraphProto {
  const body = new GraphBuilder(name, { captures: ['x'] });
  body.output(body.node(op, ['x']), ElementType.FLOAT, [2, 3], `${name}_y`);
  return body.buildGraph();
}

/** A model with attributes of every common kind: float, ints, string, tensor and graph. */
function everyAttribute(): ModelProto {
  const graph = new GraphBuilder('every');
  const x = graph.input('x', ElementType.FLOAT, [2, 3]);
  const condition = graph.input('condition', ElementType.BOOL, []);
  const chosen = graph.node('If', [condition], {
    then_branch: { graph: branch('then', 'Relu') },
    else_branch: { graph: branch('else', 'Neg') },
  });
  const leaky = graph.node('LeakyRelu', [chosen], { alpha: { float: 0.25 } });
  const w = graph.weight('w', [2, 4], Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8));
  const product = graph.node('Gemm', [leaky, w], { transA: 1 });
  const padded = graph.node('Pad', [product, graph.constant({ ints: [0, 1, 0, 1] })], { mode: 'reflect' });
  graph.output(graph.node('Transpose', [padded], { perm: [1, 0] }), ElementType.FLOAT, [6, 3], 'y');
  graph.output(x, ElementType.FLOAT, [2, 3], 'same');
  return graph.build();
}

function unknownFieldsIn(value: unknown, path = 'model'): string[] {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    key === 'unknownFields' ? [path] : unknownFieldsIn(inner, `${path}.${key}`),
  );
}

describe('unknown fields', () => {
  const unknown = [
    { no: 99, wireType: WireType.Varint, data: Uint8Array.of(0x96, 0x01) },
    { no: 120, wireType: WireType.LengthDelimited, data: Uint8Array.of(3, 1, 2, 3) },
    { no: 121, wireType: WireType.Bit32, data: Uint8Array.of(1, 2, 3, 4) },
  ];

  test('survive a read and a write in every message', () => {
    const model = everyAttribute();
    model.unknownFields = unknown;
    model.graph.unknownFields = unknown;
    model.graph.node[0]!.unknownFields = unknown;
    model.graph.initializer[0]!.unknownFields = unknown;
    model.graph.input[0]!.type!.tensorType!.shape!.dim[0]!.unknownFields = unknown;
    const back = parseModel(serializeModel(model));
    for (const message of [
      back,
      back.graph,
      back.graph.node[0],
      back.graph.initializer[0],
      back.graph.input[0]?.type?.tensorType?.shape?.dim[0],
    ]) {
      expect(message?.unknownFields).toEqual(unknown);
    }
  });

  test('a group that the schema does not know is kept whole', () => {
    const bytes = serializeModel(everyAttribute());
    const group = new BinaryWriter().tag(200, WireType.StartGroup).tag(1, WireType.Varint).uint32(7);
    const tail = group.tag(200, WireType.EndGroup).finish();
    const back = parseModel(Buffer.concat([bytes, tail]));
    expect(back.unknownFields).toHaveLength(1);
    expect(Buffer.from(encode('ModelProto', back)).subarray(-tail.byteLength)).toEqual(Buffer.from(tail));
  });
});

describe('values', () => {
  test('any 64-bit integer survives in an attribute, and a zero differs from an absent one', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (i) => {
        const model = everyAttribute();
        model.graph.node[0]!.attribute.push({ name: 'i', type: AttributeType.INT, i });
        model.graph.node[0]!.attribute.push({ name: 'zero', type: AttributeType.INT, i: 0n });
        const [first, second] = parseModel(serializeModel(model)).graph.node[0]!.attribute.slice(-2);
        expect(first?.i).toBe(i);
        expect(second?.i).toBe(0n);
        expect(second).not.toHaveProperty('f');
      }),
    );
  });

  test('raw data is a view on the bytes of the file', () => {
    const bytes = serializeModel(everyAttribute());
    const { rawData } = parseModel(bytes).graph.initializer[0]!;
    expect(rawData?.buffer).toBe(bytes.buffer);
    expect(new DataView(bytes.buffer, rawData!.byteOffset).getFloat32(4, true)).toBe(2);
  });

  test('a field of the wrong type is refused by name', () => {
    const model = everyAttribute();
    model.graph.node[0]!.attribute.push({ name: 'i', type: AttributeType.INT, i: 1.5 as unknown as bigint });
    expect(() => serializeModel(model)).toThrow(/AttributeProto\.i/);
  });
});
