import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { refusal } from '../../test/support/onnx.ts';
import { GraphBuilder } from './builder.ts';
import { checkModel } from './check.ts';
import { describeModel } from './describe.ts';
import { OnnxError } from './error.ts';
import { Graph } from './graph.ts';
import { parseModel, readModel } from './read.ts';
import { AttributeType, ElementType, type GraphProto, type NodeProto } from './types.ts';
import { serializeModel } from './write.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-onnx-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

function sample(): Uint8Array {
  const graph = new GraphBuilder('sample');
  const x = graph.input('x', ElementType.FLOAT, ['batch', 64]);
  const w = graph.weight('w', [64, 80], new Float32Array(64 * 80).fill(0.5)); // 20 KiB: more than is read at once
  const b = graph.weight('b', [80], new Float32Array(80));
  const scaled = graph.node('Mul', [graph.node('MatMul', [x, w]), graph.constant({ floats: 0.5 })]);
  const sum = graph.node('Add', [scaled, b]);
  graph.output(graph.node('Transpose', [sum], { perm: [1, 0] }), ElementType.FLOAT, [80, 'batch'], 'y');
  return serializeModel(graph.build());
}

/** Everything that a host does with a model before ONNX Runtime sees it. */
function takeIn(bytes: Uint8Array): void {
  const model = parseModel(bytes);
  checkModel(model);
  describeModel(model);
  serializeModel(model);
}

/** Reads the file with its weights left in it, which must be refused in the same way. */
async function readLeavingWeights(bytes: Uint8Array): Promise<void> {
  const path = join(folder, 'model.onnx');
  await writeFile(path, bytes);
  checkModel(await readModel(path));
}

const field = (number: number, content: Uint8Array): Uint8Array =>
  new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(content).finish();

/** So many zeros in fields within each other, the outermost first. They are not copied for each. */
function zerosIn(numbers: readonly number[], count: number): Uint8Array {
  let heads = Buffer.alloc(0);
  for (const number of numbers.toReversed()) {
    const head = new BinaryWriter()
      .tag(number, WireType.LengthDelimited)
      .uint32(heads.byteLength + count)
      .finish();
    heads = Buffer.concat([head, heads]);
  }
  const bytes = new Uint8Array(heads.byteLength + count);
  bytes.set(heads);
  return bytes;
}

describe('a file that is not a model', () => {
  test.each([
    ['empty', new Uint8Array(0), /not-onnx/, /0 bytes/],
    [
      'text of several lines',
      Buffer.from('{"a":\n  "this is a page, not a model"}'),
      /not-onnx/,
      /is text \("\{"a": "this is a p/,
    ],
    ['text', Buffer.from('{"error": "this is a page, not a model"}'), /not-onnx/, /is text \("\{"error": "this is a/],
    ['a Git LFS pointer', Buffer.from('version https://git-lfs.github.com/spec/v1\n'), /not-onnx/, /Git LFS pointer/],
    ['a safetensors file', Buffer.from('\x50\0\0\0\0\0\0\0{"w":{"dtype":"F32"'), /not-onnx/, /safetensors/],
    ['zeros', new Uint8Array(1000), /not-onnx/, /field of the number 0/],
    ['a ZIP archive', Buffer.from('504b0304140000000800', 'hex'), /not-onnx/, /is a ZIP archive/],
    ['a message without a graph', Uint8Array.of(8, 8), /not-onnx/, /no graph/],
    [
      'a length beyond the end',
      Uint8Array.of(0x3a, 0xff, 0xff, 0xff, 0xff, 0x07, 1),
      /truncated/,
      /graph takes 2147483647 bytes/,
    ],
    ['a number without an end', new Uint8Array(20).fill(0xff), /not-onnx/, /more than 10 bytes/],
    ['a field of the wrong wire type', Uint8Array.of(0x0d, 1, 2, 3, 4), /not-onnx/, /ir_version has the wire type 5/],
  ])('%s is refused with the reason', async (_, bytes, code, reason) => {
    const [found, message] = await refusal(() => parseModel(bytes));
    expect(found).toMatch(code);
    expect(message).toMatch(reason);
    const path = join(folder, 'other.onnx');
    await writeFile(path, bytes);
    const [other] = await refusal(async () => await readModel(path));
    expect(other).toMatch(code);
  });

  test('a file that does not exist, or is a folder, is refused by name', async () => {
    const missing = join(folder, 'missing.onnx');
    expect(await refusal(async () => await readModel(missing))).toEqual([
      'not-found',
      expect.stringContaining('missing.onnx'),
    ]);
    expect(await refusal(async () => await readModel(folder))).toEqual([
      'not-found',
      expect.stringContaining('is not a file'),
    ]);
  });

  test('a message that runs past its parent is refused, even if the file goes on', async () => {
    const graph = field(7, Uint8Array.of(0x0a, 20, 0x0a, 1, 120)); // a node of 20 bytes in a graph of 5
    const bytes = Buffer.concat([Uint8Array.of(8, 8), graph, field(6, new Uint8Array(100).fill(97))]);
    expect(await refusal(() => parseModel(bytes))).toEqual(['not-onnx', expect.stringMatching(/graph\.node takes 20/)]);
  });
});

describe('a valid model', () => {
  test('cut off anywhere is refused by both readers', async () => {
    const bytes = sample();
    const structure = bytes.byteLength - 64 * 80 * 4 - 80 * 4;
    const places = [...Array(structure).keys(), structure + 5000, bytes.byteLength - 1];
    for (const place of places) {
      expect(() => takeIn(bytes.subarray(0, place))).toThrow(OnnxError);
    }
    for (const place of [0, 1, 2, 30, 200, structure, structure + 5000, bytes.byteLength - 1]) {
      const [code] = await refusal(async () => await readLeavingWeights(bytes.subarray(0, place)));
      expect(['not-onnx', 'truncated', 'bad-model', 'bad-tensor']).toContain(code);
    }
  });

  test('with any bytes changed is accepted, or refused with an OnnxError', () => {
    const valid = sample();
    const change = fc.record({ at: fc.nat(valid.byteLength - 1), byte: fc.nat(255) });
    const inStructure = fc.record({ at: fc.nat(700), byte: fc.nat(255) });
    let refused = 0;
    fc.assert(
      fc.property(fc.array(fc.oneof(change, inStructure), { minLength: 1, maxLength: 8 }), (changes) => {
        const bytes = valid.slice();
        for (const { at, byte } of changes) bytes[at] = byte;
        try {
          takeIn(bytes);
        } catch (error) {
          if (!(error instanceof OnnxError)) throw error;
          refused++;
        }
      }),
      { numRuns: 1000 },
    );
    expect(refused).toBeGreaterThan(100);
  });

  test('with bytes inserted, removed or repeated gets the same verdict from both readers', async () => {
    const valid = sample();
    const edit = fc.record({ at: fc.nat(700), remove: fc.nat(20), insert: fc.uint8Array({ maxLength: 20 }) });
    await fc.assert(
      fc.asyncProperty(edit, async ({ at, remove, insert }) => {
        const bytes = Buffer.concat([valid.subarray(0, at), insert, valid.subarray(at + remove)]);
        const outcomes: string[] = [];
        for (const read of [async () => checkModel(parseModel(bytes)), async () => await readLeavingWeights(bytes)]) {
          try {
            await read();
            outcomes.push('taken');
          } catch (error) {
            if (!(error instanceof OnnxError)) throw error;
            outcomes.push('refused');
          }
        }
        expect(outcomes[1]).toBe(outcomes[0]);
      }),
      { numRuns: 300 },
    );
  });

  test('random bytes that are no model are refused with an OnnxError', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        expect(() => takeIn(bytes)).toThrow(OnnxError);
      }),
      { numRuns: 600 },
    );
  });
});

describe('depth and size', () => {
  const emptyGraph: GraphProto = { name: '', node: [], initializer: [], input: [], output: [], valueInfo: [] };

  test.each([60, 5000])('graphs nested %i deep are refused without recursion', async (depth) => {
    let bytes = new Uint8Array(0);
    for (let level = 0; level < depth; level++) {
      bytes = new Uint8Array(field(1, field(5, field(6, bytes)))); // graph { node { attribute { graph } } }
    }
    expect(await refusal(() => parseModel(field(7, bytes)))).toEqual(['too-deep', expect.stringContaining('100 deep')]);
  });

  test('groups nested 5000 deep are refused', async () => {
    const writer = new BinaryWriter();
    for (let level = 0; level < 5000; level++) writer.tag(200, WireType.StartGroup);
    expect(await refusal(() => parseModel(writer.finish()))).toEqual(['too-deep', expect.any(String)]);
  });

  test('millions of empty messages are refused before they take memory', async () => {
    const nodes = new Uint8Array(2 * 8_000_001);
    for (let at = 0; at < nodes.byteLength; at += 2) nodes[at] = 0x0a; // a node of 0 bytes
    expect(await refusal(() => parseModel(field(7, nodes)))).toEqual([
      'too-large',
      expect.stringContaining('messages'),
    ]);
  });

  test('millions of elements outside raw data are refused before they take memory', async () => {
    const bytes = zerosIn([7, 5, 5], 64_000_001); // graph { initializer { int32_data } }, packed, a byte each
    expect(await refusal(() => parseModel(bytes))).toEqual([
      'too-large',
      expect.stringContaining('graph.initializer.int32_data'),
    ]);
  });

  test('a chain of 50,000 nodes is read and ordered', () => {
    const node: NodeProto[] = Array.from({ length: 50_000 }, (_, index) => ({
      name: '',
      opType: 'Identity',
      domain: '',
      input: [index === 0 ? 'w' : `v${index - 1}`],
      output: [`v${index}`],
      attribute: [],
    }));
    const graph = {
      ...emptyGraph,
      node: node.toReversed(),
      initializer: [{ name: 'w', dims: [1n], dataType: ElementType.FLOAT, rawData: new Uint8Array(4) }],
      output: [{ name: 'v49999' }],
    };
    const bytes = serializeModel({
      irVersion: 8n,
      opsetImport: [{ domain: '', version: 17n }],
      producerName: '',
      producerVersion: '',
      domain: '',
      modelVersion: 0n,
      docString: '',
      graph,
      metadataProps: [],
    });
    const read = new Graph(parseModel(bytes));
    expect(read.nodes[0]?.outputs).toEqual(['v0']);
    expect(read.weight('v49999')?.name).toBe('w');
  });

  test('an attribute of graph type without a graph is refused by name', async () => {
    const model = parseModel(sample());
    model.graph.node[0]!.attribute.push({ name: 'body', type: AttributeType.GRAPH });
    expect(await refusal(() => checkModel(model))).toEqual(['bad-model', expect.stringMatching(/'body' of node/)]);
  });
});
