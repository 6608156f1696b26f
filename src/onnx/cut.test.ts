/** Cutting models: what lies in the chunks is all of the files, and the graph reads the same weights from them. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { draws } from '../../test/support/draws.ts';
import { chunked, cutModel, type ModelCut } from './cut.ts';
import { ElementType, GraphBuilder, readModel, tensorBytes, writeModel, type ModelProto } from './index.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-cut-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let places = 0;
const place = (): string => join(folder, String(places++), 'model.onnx');

/** The bytes of a chunk. */
function bytesOfChunk({ files }: ModelCut, slices: ModelCut['rest']): Buffer {
  const last = slices.at(-1);
  const chunk = Buffer.alloc(last === undefined ? 0 : last.at + last.bytes);
  for (const { file, offset, bytes, at } of slices) {
    readFileSync(files[file]!.path).copy(chunk, at, offset, offset + bytes);
  }
  return chunk;
}

const hashesOf = (cut: ModelCut): string[] =>
  cut.chunks.map((slices) => createHash('sha256').update(bytesOfChunk(cut, slices)).digest('hex'));

const values = (count: number, seed: number): Float32Array =>
  Float32Array.from({ length: count }, (_, at) => Math.sin(at + seed * 1000));

interface Layer {
  readonly width: number;
  readonly seed: number;
}

/** A chain of products of these widths, each with a bias, behind a front of its own. */
function chain(layers: readonly Layer[], front = 'x'): ModelProto {
  const graph = new GraphBuilder('chain');
  let x = graph.input(front, ElementType.FLOAT, ['batch', 64]);
  let before = 64;
  layers.forEach(({ width, seed }, at) => {
    const weight = graph.weight(`w${at}`, [before, width], values(before * width, seed));
    const bias = graph.weight(`b${at}`, [width], values(width, seed + 0.5));
    x = graph.node('Add', [graph.node('MatMul', [x, weight]), bias]);
    before = width;
  });
  graph.output(x, ElementType.FLOAT, ['batch', before], 'y');
  return graph.build();
}

async function cutOf(model: ModelProto, externalData: 'always' | 'never' = 'never'): Promise<ModelCut> {
  const path = place();
  await writeModel(model, path, { externalData });
  const cut = cutModel(path, 'model.onnx', (chunk) => `weights/${chunk}`);
  if (cut === undefined) throw new Error('it was not cut');
  return cut;
}

const large: Layer = { width: 4096, seed: 1 };

test('a published file is covered by its slices, each byte once, and the graph reads the same weights', async () => {
  const layer = fc.record({ width: fc.integer({ min: 1, max: 700 }), seed: fc.nat(50) });
  const models = fc.record({
    layers: fc.array(layer, { maxLength: 12 }),
    externalData: fc.constantFrom('always' as const, 'never' as const),
  });
  await fc.assert(
    fc.asyncProperty(models, async ({ layers, externalData }) => {
      const model = chain([large, ...layers]);
      const cut = await cutOf(model, externalData);
      const all = [...cut.chunks, cut.rest];
      cut.files.forEach(({ path }, file) => {
        const published = readFileSync(path);
        const made = Buffer.alloc(published.byteLength, 0xff);
        let covered = 0;
        for (const slices of all) {
          const chunk = bytesOfChunk(cut, slices);
          for (const { file: of, offset, bytes, at } of slices.filter((each) => each.file === file)) {
            expect(of).toBe(file);
            chunk.copy(made, offset, at, at + bytes);
            covered += bytes;
          }
        }
        expect(covered).toBe(published.byteLength);
        expect(made.equals(published)).toBe(true);
      });
      for (const slices of cut.chunks) for (const { at } of slices) expect(at % 64).toBe(0);
      const graphPath = place();
      mkdirSync(join(dirname(graphPath), 'weights'), { recursive: true });
      cut.chunks.forEach((slices, chunk) => {
        writeFileSync(join(dirname(graphPath), 'weights', String(chunk)), bytesOfChunk(cut, slices));
      });
      await writeModel(cut.graph, graphPath, { externalData: 'keep' });
      const read = await readModel(graphPath);
      expect(read.graph.initializer.map(({ name, dims }) => [name, dims])).toEqual(
        model.graph.initializer.map(({ name, dims }) => [name, dims]),
      );
      read.graph.initializer.forEach((tensor, at) => {
        expect(Buffer.from(tensorBytes(tensor)).equals(tensorBytes(model.graph.initializer[at]!))).toBe(true);
      });
    }),
    { numRuns: draws(4) },
  );
});

test('models of one shape with other values in one layer differ in the chunks of that layer, and have one graph', async () => {
  const layers = [large, { width: 300, seed: 2 }, { width: 200, seed: 3 }, { width: 10, seed: 4 }];
  const other = [...layers.slice(0, -1), { width: 10, seed: 5 }];
  const [one, two] = [await cutOf(chain(layers)), await cutOf(chain(other))];
  const known = new Set(hashesOf(one));
  expect(hashesOf(two).filter((hash) => !known.has(hash))).toHaveLength(1);
  expect(JSON.stringify(two.chunks)).toBe(JSON.stringify(one.chunks));
  expect(two.graph.graph.initializer).toEqual(one.graph.graph.initializer);
  expect(bytesOfChunk(two, two.rest).equals(bytesOfChunk(one, one.rest))).toBe(true);
});

test('a longer name in front of all weights, external data and another head leave the other chunks the same', async () => {
  const layers = [large, { width: 300, seed: 2 }, { width: 500, seed: 3 }];
  const known = new Set(hashesOf(await cutOf(chain(layers))));
  const longer = await cutOf(chain(layers, 'x'.repeat(10_000)));
  expect(hashesOf(longer).every((hash) => known.has(hash))).toBe(true);
  const beside = hashesOf(await cutOf(chain(layers), 'always'));
  expect(beside.filter((hash) => known.has(hash)).length).toBeGreaterThanOrEqual(3);
  const headed = hashesOf(await cutOf(chain([...layers, { width: 7, seed: 9 }])));
  expect(headed.filter((hash) => !known.has(hash)).length).toBeLessThanOrEqual(1);
});

const entriesOf = (offset: number) => [
  { key: 'location', value: 'w.bin' },
  { key: 'offset', value: String(offset) },
];

test('a small model, and one whose weights overlap in their file, stays whole', async () => {
  const smallPath = place();
  await writeModel(chain([{ width: 100, seed: 1 }]), smallPath);
  expect(cutModel(smallPath, 'model.onnx', String)).toBeUndefined();
  const overlapping = chain([large]);
  writeFileSync(join(folder, 'w.bin'), Buffer.alloc(4_000_000));
  const [weight, bias] = overlapping.graph.initializer;
  for (const [tensor, offset] of [
    [weight!, 0],
    [bias!, 64],
  ] as const) {
    delete tensor.rawData;
    delete tensor.source;
    Object.assign(tensor, { dataLocation: 1, externalData: entriesOf(offset) });
  }
  const path = join(folder, 'overlapping.onnx');
  await writeModel(overlapping, path, { externalData: 'keep' });
  expect(cutModel(path, 'model.onnx', String)).toBeUndefined();
});

test('thousands of tensors make no more chunks than a folder may have', () => {
  const chunks = chunked(
    Array.from({ length: 5000 }, (_, at) => ({ bytes: 70_000 + at })),
    ({ bytes }) => bytes,
  );
  expect(chunks.length).toBeLessThanOrEqual(512);
  expect(chunks.flat()).toHaveLength(5000);
});
