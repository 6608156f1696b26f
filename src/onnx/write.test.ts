import { closeSync, openSync, truncateSync, writeSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { refusal } from '../../test/support/onnx.ts';
import { GraphBuilder } from './builder.ts';
import { checkModel } from './check.ts';
import { OnnxError } from './error.ts';
import { parseModel, readModel } from './read.ts';
import { tensorBytes } from './tensor-data.ts';
import { ElementType, type ModelProto, type StringStringEntry } from './types.ts';
import { serializeModel, writeModel } from './write.ts';

let root: string;
let folder: string;
let count = 0;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'turntable-onnx-'));
});
beforeEach(async () => {
  folder = join(root, String(count++));
  await mkdir(folder);
});
afterAll(async () => {
  await rm(root, { recursive: true, force: true });
});

const width = 160;

/** y = x * w + b, where w has 100 KiB (so it is page-aligned in its file) and b 640 bytes. */
function linear(): ModelProto {
  const graph = new GraphBuilder('linear');
  const x = graph.input('x', ElementType.FLOAT, [1, width]);
  const w = graph.weight('w', [width, width], () => Float32Array.from({ length: width ** 2 }, (_, i) => Math.sin(i)));
  const b = graph.weight(
    'b',
    [width],
    Float32Array.from({ length: width }, (_, i) => i),
  );
  graph.output(graph.node('Add', [graph.node('MatMul', [x, w]), b]), ElementType.FLOAT, [1, width], 'y');
  return graph.build();
}

async function run(model: string | Uint8Array): Promise<Float32Array> {
  const session = await InferenceSession.create(model as string, { intraOpNumThreads: 1 });
  const x = new Tensor(
    'float32',
    Float32Array.from({ length: width }, (_, i) => Math.cos(i)),
    [1, width],
  );
  const { y } = await session.run({ x });
  return y!.data as Float32Array;
}

const entries = (location: string, more: StringStringEntry[] = []): StringStringEntry[] => [
  { key: 'location', value: location },
  ...more,
];

describe('a model', () => {
  test('runs the same with its weights inside or in a file beside it', async () => {
    const model = linear();
    const expected = await run(serializeModel(model));
    for (const externalData of ['auto', 'never', 'always'] as const) {
      const path = join(folder, externalData, 'model.onnx');
      await writeModel(model, path, { externalData });
      expect(await run(path)).toEqual(expected);
      const read = await readModel(path);
      checkModel(read, join(folder, externalData));
      expect(Buffer.compare(serializeModel(read), serializeModel(model))).toBe(0);
    }
  });

  test('gives the same bytes each time it is written', async () => {
    const written: Buffer[][] = [];
    for (const place of ['one', 'two']) {
      const path = join(folder, place, 'model.onnx');
      await writeModel(linear(), path, { externalData: 'always' });
      written.push([await readFile(path), await readFile(`${path}.data`)]);
    }
    expect(written[1]).toEqual(written[0]);
  });

  test('puts large external tensors on page boundaries and small ones on 64 bytes', async () => {
    const path = join(folder, 'model.onnx');
    const model = linear();
    // Small ones first, so that the large one has to be aligned.
    for (const name of ['second', 'first']) {
      model.graph.initializer.unshift({
        name,
        dims: [300n],
        dataType: ElementType.FLOAT,
        rawData: new Uint8Array(1200).fill(7),
      });
    }
    const written = await writeModel(model, path, { externalData: 'always' });
    const { initializer } = parseModel(await readFile(path)).graph;
    expect(initializer.map(({ name, externalData }) => [name, externalData?.[1]?.value])).toEqual([
      ['first', '0'],
      ['second', '1216'],
      ['w', '4096'],
      ['b', undefined],
    ]);
    const data = await readFile(`${path}.data`);
    expect(data.subarray(1200, 1217)).toEqual(Buffer.from([...Array<number>(16).fill(0), 7]));
    expect(written.externalBytes).toBe(4096 + width * width * 4);
    expect(data.byteLength).toBe(written.externalBytes);
    expect((await stat(path)).size).toBe(written.modelBytes);
  });

  test('can be written over the file that its weights are read from', async () => {
    const path = join(folder, 'model.onnx');
    const expected = await run(serializeModel(linear()));
    await writeModel(linear(), path);
    await writeModel(await readModel(path), path, { externalData: 'always' });
    await writeModel(await readModel(path), path, { externalData: 'always' });
    await writeModel(await readModel(path), path, { externalData: 'never' });
    expect(await run(path)).toEqual(expected);
  });

  test('that keeps its external data still names it, and none of it is read', async () => {
    await writeModel(linear(), join(folder, 'model.onnx'), { externalData: 'always' });
    const model = await readModel(join(folder, 'model.onnx'));
    const external = model.graph.initializer[0]!;
    external.source = () => {
      throw new Error('read');
    };
    await writeModel(model, join(folder, 'second.onnx'), { externalData: 'keep' });
    expect(await run(join(folder, 'second.onnx'))).toEqual(await run(join(folder, 'model.onnx')));
  });

  test('stays as it was if writing its successor fails, and no partial file is left', async () => {
    const path = join(folder, 'model.onnx');
    await writeModel(linear(), path, { externalData: 'always' });
    const before = await readFile(path);
    const broken = linear();
    broken.graph.initializer[0]!.source = () => new Uint8Array(5);
    for (const externalData of ['never', 'always'] as const) {
      expect(await refusal(async () => await writeModel(broken, path, { externalData }))).toEqual([
        'bad-tensor',
        expect.stringMatching(/'w' has 5 bytes.*102400/),
      ]);
    }
    expect(await readFile(path)).toEqual(before);
    expect((await readdir(folder)).toSorted()).toEqual(['model.onnx', 'model.onnx.data']);
  });

  test('beyond 2 GiB puts weights in a file beside it, or is refused before a byte is made', async () => {
    const model = linear();
    const huge = model.graph.initializer[0]!;
    huge.dims = [2n ** 16n, 2n ** 14n];
    huge.source = () => {
      throw new Error('made');
    };
    const path = join(folder, 'model.onnx');
    expect(await refusal(async () => await writeModel(model, path, { externalData: 'never' }))).toEqual([
      'too-large',
      expect.stringMatching(/4294\d+ bytes/),
    ]);
    await expect(writeModel(model, path)).rejects.toThrow('made');
    expect(() => serializeModel(model)).toThrow(OnnxError);
    expect(await readdir(folder)).toEqual([]);
  });
});

/** The linear model with its weights at `offset` of a sparse file. */
async function sparse(offset: number, length?: number): Promise<string> {
  const path = join(folder, 'model.onnx');
  const model = linear();
  const [w, b] = model.graph.initializer;
  const bytes = tensorBytes(w!);
  delete w!.source;
  w!.dataLocation = 1;
  w!.externalData = entries('weights.bin', [
    { key: 'offset', value: String(offset) },
    ...(length === undefined ? [] : [{ key: 'length', value: String(length) }]),
  ]);
  expect(b?.rawData).toBeDefined();
  const data = join(folder, 'weights.bin');
  await writeFile(data, '');
  truncateSync(data, offset + bytes.byteLength);
  const descriptor = openSync(data, 'r+');
  writeSync(descriptor, bytes, 0, bytes.byteLength, offset);
  closeSync(descriptor);
  await writeFile(path, serializeModel(model));
  return path;
}

describe('external data', () => {
  test('is read at offsets beyond 2 and 4 GiB, as in ONNX Runtime', async () => {
    const expected = await run(serializeModel(linear()));
    for (const offset of [2 ** 31 - 4096, 2 ** 32 + 4096]) {
      const path = await sparse(offset, width * width * 4);
      const model = await readModel(path);
      checkModel(model, folder);
      expect(await run(serializeModel(model))).toEqual(expected);
      expect(await run(path)).toEqual(expected);
    }
  });

  test('may leave its length out', async () => {
    const model = await readModel(await sparse(64));
    expect(Buffer.compare(serializeModel(model), serializeModel(linear()))).toBe(0);
  });

  test('that is too short, missing or of another length is refused by name', async () => {
    const path = await sparse(4096, width * width * 4);
    truncateSync(join(folder, 'weights.bin'), 5000);
    const read = async (): Promise<Uint8Array> => serializeModel(await readModel(path));
    expect(await refusal(read)).toEqual([
      'external-data',
      expect.stringMatching(/'w' ends at byte 106496 of 'weights\.bin', but the file has only 5000/),
    ]);
    await rm(join(folder, 'weights.bin'));
    expect(await refusal(read)).toEqual([
      'external-data',
      expect.stringMatching(/'weights\.bin' of tensor 'w' cannot be found/),
    ]);
    await mkdir(join(folder, 'weights.bin'));
    expect(await refusal(read)).toEqual([
      'external-data',
      expect.stringMatching(/'weights\.bin' of tensor 'w' is not a file/),
    ]);
    await rm(join(folder, 'weights.bin'), { recursive: true });
    await sparse(0, 17);
    expect(await refusal(read)).toEqual([
      'external-data',
      expect.stringMatching(/'w' is 17 bytes long, but its dimensions take 102400/),
    ]);
  });

  test.each([
    ['/etc/passwd', /is absolute/],
    ['C:\\weights.bin', /is absolute/],
    ['C:weights.bin', /is absolute/],
    ['\\\\server\\share', /is absolute/],
    ['../outside.bin', /contains '\.\.'/],
    ['data/../../outside.bin', /contains '\.\.'/],
    ['data\\..\\..\\outside.bin', /contains '\.\.'/],
    ['', /is empty/],
    ['a\0b', /zero byte/],
  ])('at %j is refused', async (location, reason) => {
    const model = linear();
    const [w] = model.graph.initializer;
    delete w!.source;
    w!.dataLocation = 1;
    w!.externalData = entries(location);
    const path = join(folder, 'model.onnx');
    await writeFile(join(root, 'outside.bin'), Buffer.alloc(width * width * 4));
    await writeFile(path, serializeModel(model));
    const read = await readModel(path);
    expect(await refusal(() => checkModel(read))).toEqual(['external-data', expect.stringMatching(reason)]);
    expect(await refusal(() => tensorBytes(read.graph.initializer[0]!, folder))).toEqual([
      'external-data',
      expect.stringMatching(reason),
    ]);
    expect(await refusal(() => serializeModel(read))).toEqual(['external-data', expect.stringMatching(reason)]);
  });

  test('behind a symbolic link is read inside the folder and refused outside it', async () => {
    const path = await sparse(0);
    await symlink(join(folder, 'weights.bin'), join(folder, 'inside.bin'));
    await writeFile(join(root, 'outside.bin'), Buffer.alloc(width * width * 4));
    await symlink(join(root, 'outside.bin'), join(folder, 'link.bin'));
    await symlink(root, join(folder, 'up'));
    const model = parseModel(await readFile(path));
    const w = model.graph.initializer[0]!;
    w.externalData = entries('inside.bin');
    expect(tensorBytes(w, folder).byteLength).toBe(width * width * 4);
    for (const location of ['link.bin', 'up/outside.bin']) {
      w.externalData = entries(location);
      expect(await refusal(() => tensorBytes(w, folder))).toEqual([
        'external-data',
        expect.stringMatching(/leaves the model's folder through a symbolic link/),
      ]);
    }
  });

  test.each(['-1', '1.5', '0x10', 'many', '99999999999999999999'])('with the offset %s is refused', async (value) => {
    const model = linear();
    const w = model.graph.initializer[0]!;
    delete w.source;
    w.dataLocation = 1;
    w.externalData = entries('weights.bin', [{ key: 'offset', value }]);
    expect(await refusal(() => tensorBytes(w, folder))).toEqual([
      'external-data',
      expect.stringMatching(/tensor 'w' has the offset/),
    ]);
  });
});

const typed = (dataType: number, data: object, dims = [2n]) => [...tensorBytes({ name: 't', dims, dataType, ...data })];

/** Without -0, whose sign ONNX Runtime drops when it reads a typed field. */
const anyFloats = fc
  .float32Array({ minLength: 1, maxLength: 50, noNaN: true })
  .map((values) => values.map((value) => (value === 0 ? 0 : value)));

describe('the bytes of a tensor', () => {
  test('are the same from typed fields and from raw data', () => {
    expect(typed(ElementType.FLOAT, { floatData: [1, -2] })).toEqual([0, 0, 128, 63, 0, 0, 0, 192]);
    expect(typed(ElementType.INT8, { int32Data: [-1, 5] })).toEqual([255, 5]);
    expect(typed(ElementType.BOOL, { int32Data: [1, 0] })).toEqual([1, 0]);
    expect(typed(ElementType.FLOAT16, { int32Data: [0x3c00, 0xc000] })).toEqual([0, 60, 0, 192]);
    expect(typed(ElementType.INT16, { int32Data: [-2, 1] })).toEqual([254, 255, 1, 0]);
    expect(typed(ElementType.UINT32, { uint64Data: [2n ** 32n - 1n, 1n] })).toEqual([255, 255, 255, 255, 1, 0, 0, 0]);
    expect(typed(ElementType.INT64, { int64Data: [-1n] }, [1n])).toEqual(Array<number>(8).fill(255));
    expect(typed(ElementType.DOUBLE, { doubleData: [1] }, [])).toEqual([0, 0, 0, 0, 0, 0, 240, 63]);
    expect(typed(ElementType.COMPLEX64, { floatData: [1, 0] }, [1n])).toEqual([0, 0, 128, 63, 0, 0, 0, 0]);
    expect(typed(ElementType.UINT4, { int32Data: [0x21, 0x03] }, [3n])).toEqual([0x21, 3]);
  });

  test('are refused by name if the dimensions take another number', async () => {
    const tensor = { name: 't', dims: [3n], dataType: ElementType.FLOAT };
    expect(await refusal(() => tensorBytes(tensor))).toEqual([
      'bad-tensor',
      expect.stringMatching(/'t' has 0 bytes.*FLOAT of dimensions \[3\] takes 12/),
    ]);
    expect(await refusal(() => tensorBytes({ ...tensor, floatData: [1, 2] }))).toEqual([
      'bad-tensor',
      expect.stringMatching(/'t' has 8 bytes/),
    ]);
    expect(await refusal(() => tensorBytes({ ...tensor, dims: [-3n] }))).toEqual([
      'bad-tensor',
      expect.stringMatching(/negative dimension -3/),
    ]);
    expect(await refusal(() => tensorBytes({ ...tensor, dataType: 77 }))).toEqual([
      'bad-tensor',
      expect.stringMatching(/unknown element type type 77/),
    ]);
    expect(await refusal(() => tensorBytes({ ...tensor, dataType: ElementType.STRING }))).toEqual([
      'unsupported',
      expect.stringMatching(/strings/),
    ]);
  });

  test('of any float32 tensor survive writing, reading and loading into ONNX Runtime', async () => {
    await fc.assert(
      fc.asyncProperty(anyFloats, fc.boolean(), async (values, raw) => {
        const graph = new GraphBuilder('constant');
        const c = graph.weight('c', [values.length], values);
        const x = graph.input('x', ElementType.FLOAT, [values.length]);
        graph.output(graph.node('Where', [graph.node('Equal', [x, x]), c, x]), ElementType.FLOAT, [values.length], 'y');
        const model = graph.build();
        if (!raw) {
          delete model.graph.initializer[0]!.rawData;
          model.graph.initializer[0]!.floatData = [...values];
        }
        const session = await InferenceSession.create(serializeModel(model), { intraOpNumThreads: 1 });
        const { y } = await session.run({
          x: new Tensor('float32', new Float32Array(values.length), [values.length]),
        });
        expect(y?.data).toEqual(values);
      }),
      { numRuns: 25 },
    );
  });
});
