import { createHash } from 'node:crypto';
import * as ort from 'onnxruntime-node';
import { describe, expect, test } from 'vitest';
import { checkModel } from '../check.ts';
import { describeModel } from '../describe.ts';
import { ElementType, type ModelProto, type ValueInfoProto } from '../types.ts';
import { serializeModel } from '../write.ts';
import { architectures, buildArchitecture, type SettingValue } from './index.ts';
import { seededWeights } from './seeded-weights.ts';
import { unrolledNetwork } from '../../../test/support/unrolled-networks.ts';

type Settings = Readonly<Record<string, SettingValue>>;

const tinyTransformer = { layers: 2, hidden: 16, heads: 2, vocabulary: 50, positions: 12 };
const tinyImage = { image: 32, width: 4, classes: 10 };
const tinyRecurrent = { layers: 2, hidden: 8, input: 6, sequence: 5 };

/** Each architecture at a size that runs in milliseconds, and the length of an open sequence. */
const tiny = {
  'bert-base': tinyTransformer,
  'bert-large': { ...tinyTransformer, types: 3 },
  'roberta-base': tinyTransformer,
  'roberta-large': { ...tinyTransformer, intermediate: 24 },
  gpt2: tinyTransformer,
  'gpt2-medium': tinyTransformer,
  resnet50: tinyImage,
  resnet101: { ...tinyImage, blocks: '1,2,2,1', channels: 1 },
  vgg16: { ...tinyImage, hidden: 16 },
  'inception-v3': { image: 75, width: 0.1, classes: 10 },
  'mobilenet-v2': { image: 32, width: 0.2, classes: 10 },
  lstm: tinyRecurrent,
  gru: { ...tinyRecurrent, sequence: 0 },
  mlp: { layers: 3, input: 6, hidden: 8, output: 4 },
} satisfies Readonly<Record<string, Settings>>;
const openSequence = 7;

async function load(model: ModelProto): Promise<ort.InferenceSession> {
  return ort.InferenceSession.create(serializeModel(model), { intraOpNumThreads: 1, logSeverityLevel: 3 });
}

function sizes({ type }: ValueInfoProto, batch: number): number[] {
  const open: Readonly<Record<string, number>> = { batch, sequence: openSequence };
  return (type?.tensorType?.shape?.dim ?? []).map(({ dimValue, dimParam }) => Number(dimValue ?? open[dimParam ?? '']));
}

/** Seeded inputs: token ids within the tiny vocabulary, masks of ones, or numbers around 0. */
function inputs(model: ModelProto, batch: number, seed: number): Record<string, ort.Tensor> {
  return Object.fromEntries(
    model.graph.input.map((input) => {
      const dims = sizes(input, batch);
      const count = dims.reduce((product, size) => product * size, 1);
      const numbers = seededWeights(seed, input.name, count, { std: 1 });
      if (input.type?.tensorType?.elemType === ElementType.FLOAT) {
        return [input.name, new ort.Tensor('float32', numbers, dims)];
      }
      const ids = Array.from(numbers, (value) => {
        if (input.name === 'attention_mask') return 1n;
        return input.name === 'token_type_ids' ? BigInt(value > 0) : BigInt(Math.floor(Math.abs(value) * 18) + 2);
      });
      return [input.name, new ort.Tensor('int64', BigInt64Array.from(ids), dims)];
    }),
  );
}

async function run(session: ort.InferenceSession, feeds: Record<string, ort.Tensor>): Promise<Map<string, ort.Tensor>> {
  return new Map(Object.entries(await session.run(feeds)));
}

const values = (tensor: ort.Tensor | undefined): Float32Array => tensor?.data as Float32Array;

function largestDifference(left: Float32Array, right: Float32Array): number {
  expect(left.length).toBe(right.length);
  return left.reduce((largest, value, index) => Math.max(largest, Math.abs(value - (right[index] ?? NaN))), 0);
}

function spread(numbers: Float32Array): number {
  const mean = numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
  return Math.sqrt(numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0) / numbers.length);
}

test('every architecture has a tiny form here', () => {
  expect(Object.keys(tiny)).toEqual(architectures.map(({ name }) => name));
});

describe.each<[name: string, settings: Settings]>(Object.entries(tiny))('%s', (name, settings) => {
  const { model } = buildArchitecture(name, settings, 7);

  test('answers in ONNX Runtime with the shapes it declares, for two batch sizes', async () => {
    const session = await load(model);
    for (const batch of [1, 3]) {
      const results = await run(session, inputs(model, batch, 1));
      for (const output of model.graph.output) {
        expect([output.name, results.get(output.name)?.dims]).toEqual([output.name, sizes(output, batch)]);
        expect(values(results.get(output.name)).every((value) => Number.isFinite(value) && Math.abs(value) < 1e4)).toBe(
          true,
        );
      }
    }
    await session.release();
  });

  test('answers differently to another input, and equally to the same one in a batch', async () => {
    const session = await load(model);
    const [first, second, both] = [inputs(model, 1, 1), inputs(model, 1, 2), inputs(model, 2, 3)];
    for (const key of model.graph.input.map((input) => input.name)) {
      const [a, b, joined] = [first[key]!.data, second[key]!.data, both[key]!.data] as Float32Array[];
      joined!.set(a!, 0);
      joined!.set(b!, a!.length);
    }
    const [alone, other, batched] = [await run(session, first), await run(session, second), await run(session, both)];
    const output = model.graph.output[0]!.name;
    const expected = values(alone.get(output));
    expect(largestDifference(expected, values(other.get(output)))).toBeGreaterThan(0.02 * spread(expected));
    expect(spread(expected)).toBeGreaterThan(0);
    expect(largestDifference(expected, values(batched.get(output)).subarray(0, expected.length))).toBeLessThan(1e-4);
    await session.release();
  });

  test('is the same file for the same seed, and another file for another seed', () => {
    const [same, again, other] = [7, 7, 8].map((seed) =>
      Buffer.from(serializeModel(buildArchitecture(name, settings, seed).model)),
    );
    expect(again!.equals(same!)).toBe(true);
    expect(other!.equals(same!)).toBe(false);
  });

  test('has as many bytes of weights as it says', () => {
    const { weightBytes, parameterCount } = buildArchitecture(name, settings, 7);
    const bytes = model.graph.initializer.reduce((sum, tensor) => sum + tensor.source!().byteLength, 0);
    expect(weightBytes).toBe(bytes);
    expect(parameterCount).toBeLessThanOrEqual(bytes / 4);
  });
});

test.each([
  ['bert-base', 109_482_240],
  ['bert-large', 335_141_888],
  ['roberta-base', 124_645_632],
  ['roberta-large', 355_359_744],
  ['gpt2', 124_439_808],
  ['gpt2-medium', 354_823_168],
  ['resnet50', 25_557_032],
  ['resnet101', 44_549_160],
  ['vgg16', 138_357_544],
  ['inception-v3', 23_834_568],
  ['mobilenet-v2', 3_504_872],
])('%s has the %i parameters that are published', (name, published) => {
  expect(buildArchitecture(name).parameterCount).toBe(published);
});

test.each(architectures)(
  '$name at full size is valid, and readers of the model count the same parameters',
  ({ name }) => {
    const { model, parameterCount } = buildArchitecture(name);
    expect(checkModel(model)).toBeUndefined();
    expect(describeModel(model).parameterCount).toBe(parameterCount);
  },
);

describe('transformers', () => {
  test.each(['bert-base', 'roberta-base'] as const)('%s ignores masked tokens', async (name) => {
    const { model } = buildArchitecture(name, tiny[name], 1);
    const session = await load(model);
    const [feeds, changed] = [inputs(model, 1, 1), inputs(model, 1, 1)];
    for (const each of [feeds, changed]) (each['attention_mask']!.data as BigInt64Array)[openSequence - 1] = 0n;
    (changed['input_ids']!.data as BigInt64Array)[openSequence - 1] = 9n;
    (feeds['input_ids']!.data as BigInt64Array)[openSequence - 1] = 8n;
    const [before, after] = [await run(session, feeds), await run(session, changed)];
    const seen = (openSequence - 1) * 16;
    const [left, right] = [before, after].map((result) => values(result.get('last_hidden_state')));
    expect(largestDifference(left!.subarray(0, seen), right!.subarray(0, seen))).toBe(0);
    expect(largestDifference(left!.subarray(seen), right!.subarray(seen))).toBeGreaterThan(0);
  });

  test('a fully masked sequence gives finite numbers', async () => {
    const { model } = buildArchitecture('bert-base', tiny['bert-base'], 1);
    const feeds = inputs(model, 1, 1);
    (feeds['attention_mask']!.data as BigInt64Array).fill(0n);
    const result = await run(await load(model), feeds);
    expect(values(result.get('last_hidden_state')).every(Number.isFinite)).toBe(true);
  });

  test('gpt2 does not see later tokens', async () => {
    const { model } = buildArchitecture('gpt2', tiny.gpt2, 1);
    const session = await load(model);
    const [feeds, changed] = [inputs(model, 1, 1), inputs(model, 1, 1)];
    const ids = changed['input_ids']!.data as BigInt64Array;
    ids[openSequence - 1] = (ids[openSequence - 1]! + 1n) % 50n;
    const [left, right] = [await run(session, feeds), await run(session, changed)].map((each) =>
      values(each.get('logits')),
    );
    const seen = (openSequence - 1) * 50;
    expect(largestDifference(left!.subarray(0, seen), right!.subarray(0, seen))).toBe(0);
    expect(largestDifference(left!.subarray(seen), right!.subarray(seen))).toBeGreaterThan(0);
  });

  test('gpt2 holds its token embedding once', () => {
    const { model } = buildArchitecture('gpt2', tiny.gpt2, 1);
    const tables = model.graph.initializer.filter(({ dims }) => dims.includes(50n));
    expect(tables.map(({ name }) => name)).toEqual(['transformer.wte.weight']);
    expect(model.graph.node.filter(({ input }) => input.includes('transformer.wte.weight'))).toHaveLength(2);
  });
});

describe.each(['lstm', 'gru'] as const)('%s', (name) => {
  test.each(['cells', 'primitive'] as const)(
    'unrolled as %s, it gives the answer of one node per layer',
    async (form) => {
      const settings = { ...tinyRecurrent, layers: 3 };
      const whole = buildArchitecture(name, settings, 5).model;
      const cells = unrolledNetwork(name, settings, form, 5);
      const feeds = inputs(whole, 2, 1);
      const [expected, found] = [await run(await load(whole), feeds), await run(await load(cells), feeds)];
      expect([...found.keys()]).toEqual([...expected.keys()]);
      for (const [output, tensor] of expected) {
        expect(found.get(output)?.dims).toEqual(tensor.dims);
        expect(largestDifference(values(found.get(output)), values(tensor))).toBeLessThan(1e-5);
      }
    },
  );

  test('at its default size the answer still depends on the input', async () => {
    const { model } = buildArchitecture(name);
    const session = await load(model);
    const [left, right] = [await run(session, inputs(model, 1, 1)), await run(session, inputs(model, 1, 2))].map(
      (each) => values(each.get('output')),
    );
    expect(largestDifference(left!, right!)).toBeGreaterThan(0.1 * spread(left!));
  });
});

describe('settings', () => {
  test.each<[mistake: string, name: string, settings: Settings, message: RegExp]>([
    ['an unknown architecture', 'resnet5', {}, /no architecture 'resnet5'; there are bert-base, .*resnet50/],
    ['an unknown setting', 'mlp', { depth: 2 }, /mlp has no setting 'depth'; it has layers, input/],
    ['a name of Object.prototype', 'mlp', { constructor: 2 }, /no setting 'constructor'/],
    ['text that is no number', 'mlp', { layers: 'two' }, /'layers' of mlp is 'two', but takes an integer from 1 to/],
    ['an empty text', 'mlp', { input: '' }, /'input' of mlp is ''/],
    ['a fraction', 'mlp', { input: 1.5 }, /'input' of mlp is '1.5', but takes an integer of at least 1/],
    ['zero', 'mlp', { hidden: '0' }, /'hidden' of mlp is '0'/],
    ['a list of another length', 'resnet50', { blocks: '1,2' }, /'blocks' of resnet50 is '1,2', but takes 4 integers/],
    ['several for one', 'mlp', { hidden: '1,2' }, /'hidden' of mlp is '1,2'/],
    ['heads that do not divide', 'gpt2', { hidden: 10, heads: 3 }, /hidden is 10, which 3 heads do not divide/],
    ['a sequence beyond the positions', 'roberta-base', { sequence: 513 }, /sequence is 513, but .* reaches 512/],
    ['an image of odd size', 'vgg16', { image: 40 }, /image is 40, but vgg16 takes multiples of 32/],
  ])('%s is refused by name', (_mistake, name, settings, message) => {
    expect(() => buildArchitecture(name, settings)).toThrow(message);
  });

  test('a negative seed is refused', () => {
    expect(() => buildArchitecture('mlp', {}, -1)).toThrow(/the seed is -1/);
  });

  test('open sizes (0) can be fixed', () => {
    const { model } = buildArchitecture('bert-base', { ...tinyTransformer, batch: 2, sequence: 4 });
    expect(sizes(model.graph.input[0]!, NaN)).toEqual([2, 4]);
  });
});

describe('seeded weights', () => {
  test('have the requested mean and spread', () => {
    const numbers = seededWeights(3, 'w', 200_000, { mean: 2, std: 0.5 });
    expect(numbers.reduce((sum, value) => sum + value, 0) / numbers.length).toBeCloseTo(2, 2);
    expect(spread(numbers)).toBeCloseTo(0.5, 2);
  });

  test.each<[what: string, seed: number, name: string]>([
    ['seed', 4, 'layer.0.weight'],
    ['name', 3, 'layer.1.weight'],
  ])('another %s gives unrelated weights', (_what, seed, name) => {
    const count = 100_000;
    const first = seededWeights(3, 'layer.0.weight', count, { std: 1 });
    const second = seededWeights(seed, name, count, { std: 1 });
    const correlation = first.reduce((sum, value, index) => sum + value * second[index]!, 0) / count;
    // The standard error of a correlation of 100,000 pairs is 0.003.
    expect(Math.abs(correlation)).toBeLessThan(0.015);
  });

  test('are the same on every machine', () => {
    const bytes = new Uint8Array(seededWeights(42, 'encoder.layer.0.weight', 10_000, { mean: 1, std: 0.1 }).buffer);
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(
      'bdd7d2ab1fde3a1795b05b3b84b34fa8788247a7a369a399015c8e2dc3545a69',
    );
  });

  test('neighbours are not correlated', () => {
    const count = 100_000;
    const numbers = seededWeights(0, 'w', count, { std: 1 });
    for (const lag of [1, 2, 3, 8, 64, 768]) {
      const correlation = numbers.subarray(lag).reduce((sum, value, index) => sum + value * numbers[index]!, 0) / count;
      expect([lag, Math.abs(correlation) < 0.015]).toEqual([lag, true]);
    }
  });

  test('a longer weight begins with the shorter one', () => {
    const long = seededWeights(1, 'w', 100, { std: 1 });
    expect(seededWeights(1, 'w', 10, { std: 1 })).toEqual(long.subarray(0, 10));
  });
});
