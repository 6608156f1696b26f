import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { attributeOf, ElementType, GraphBuilder, writeModel } from '../../../onnx/index.ts';
import { operators } from '../../operators/index.ts';
import { prepareBase } from '../base.ts';
import { prepareGraph } from '../prepare.ts';
import type { ProgramSettings } from '../../types.ts';
import { WorkGraph, type WorkNode } from '../work-graph.ts';
import { writeOut } from '../written.ts';
import { factsOf } from '../../../operators/index.ts';
import { fuse } from './index.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-fusion-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const { FLOAT } = ElementType;
const byType = new Map(operators.map((operator) => [operator.type, operator]));
let models = 0;

/** The nodes that fusion leaves of a model, after operators that are made of others were written as these. */
async function fused(
  build: (graph: GraphBuilder) => void,
  settings: ProgramSettings = { precision: 'exact' },
): Promise<readonly WorkNode[]> {
  const graph = new GraphBuilder('fusion');
  build(graph);
  const path = join(folder, `${models++}.onnx`);
  await writeModel(graph.build(), path);
  const work = new WorkGraph(await prepareGraph(await prepareBase(path, folder), [], folder));
  expect(writeOut(work, byType, new Set())).toEqual([]);
  fuse(work, byType, settings);
  return work.nodes;
}

const types = (nodes: readonly WorkNode[]): string[] => nodes.map(({ type }) => type);
const zeros = (length: number): Float32Array => new Float32Array(length);

const erf = (x: number): number => factsOf({ opType: 'Erf', domain: '' })!.numbers!(x, Number.NaN);

test('the error function is exact to six digits', () => {
  // Abramowitz and Stegun, table 7.1.
  expect(erf(0.5)).toBeCloseTo(0.5204998778, 6);
  expect(erf(1)).toBeCloseTo(0.8427007929, 6);
  expect(erf(-2)).toBeCloseTo(-0.995322265, 6);
});

type Value = (x: string, graph: GraphBuilder) => string;
const scalar = (graph: GraphBuilder, value: number): string => graph.constant({ floats: value });

const erfForms: Record<string, Value> = {
  'x (1 + erf(x / sqrt 2)) / 2': (x, g) => {
    const inner = g.node('Add', [g.node('Erf', [g.node('Div', [x, scalar(g, Math.SQRT2)])]), scalar(g, 1)]);
    return g.node('Mul', [g.node('Mul', [x, inner]), scalar(g, 0.5)]);
  },
  '(x / 2) (1 + erf(x sqrt 1/2))': (x, g) => {
    const inner = g.node('Add', [scalar(g, 1), g.node('Erf', [g.node('Mul', [scalar(g, Math.SQRT1_2), x])])]);
    return g.node('Mul', [g.node('Mul', [scalar(g, 0.5), x]), inner]);
  },
};
const tanhForms: Record<string, Value> = {
  'with a cube': (x, g) => {
    const cubed = g.node('Mul', [g.node('Pow', [x, scalar(g, 3)]), scalar(g, 0.044715)]);
    const tanh = g.node('Tanh', [g.node('Mul', [g.node('Add', [x, cubed]), scalar(g, Math.sqrt(2 / Math.PI))])]);
    return g.node('Mul', [g.node('Mul', [x, scalar(g, 0.5)]), g.node('Add', [tanh, scalar(g, 1)])]);
  },
  'with products': (x, g) => {
    const squared = g.node('Mul', [g.node('Mul', [x, scalar(g, 0.044715)]), x]);
    const inner = g.node('Mul', [g.node('Mul', [x, scalar(g, 0.7978845608)]), g.node('Add', [squared, scalar(g, 1)])]);
    return g.node('Mul', [g.node('Mul', [scalar(g, 0.5), x]), g.node('Add', [g.node('Tanh', [inner]), scalar(g, 1)])]);
  },
};

const gelus = [
  ...Object.entries(erfForms).map(([name, form]) => ({ name, form, approximate: 'none' })),
  ...Object.entries(tanhForms).map(([name, form]) => ({ name, form, approximate: 'tanh' })),
];

test.each(gelus)('GELU is found as $name ($approximate)', async ({ form, approximate }) => {
  const nodes = await fused((graph) => {
    const x = graph.input('x', FLOAT, [2, 8]);
    graph.output(form(x, graph), FLOAT, [2, 8], 'y');
  });
  expect(types(nodes)).toEqual(['Gelu']);
  expect(attributeOf(nodes[0]!.proto, 'approximate', '')).toBe(approximate);
});

test('arithmetic that is almost GELU stays as it is', async () => {
  const nodes = await fused((graph) => {
    const x = graph.input('x', FLOAT, [2, 8]);
    const inner = graph.node('Add', [
      graph.node('Erf', [graph.node('Div', [x, scalar(graph, 1.5)])]),
      scalar(graph, 1),
    ]);
    graph.output(graph.node('Mul', [graph.node('Mul', [x, inner]), scalar(graph, 0.5)]), FLOAT, [2, 8], 'y');
  });
  expect(types(nodes)).not.toContain('Gelu');
});

const activated = (form: Value) => (graph: GraphBuilder) => {
  const x = graph.input('x', FLOAT, [2, 4, 8]);
  const product = graph.node('MatMul', [x, graph.weight('w', [8, 16], zeros(128))]);
  const biased = graph.node('Add', [graph.weight('b', [16], zeros(16)), product]);
  graph.output(form(biased, graph), FLOAT, [2, 4, 16], 'y');
};

test('a product is fused with its bias and a tanh GELU, but not with an exact GELU', async () => {
  const withTanh = await fused(activated(tanhForms['with a cube']!));
  expect(types(withTanh).filter((type) => type.includes('Product'))).toHaveLength(1);
  expect(types(withTanh)).not.toContain('Gelu');
  expect(types(withTanh)).not.toContain('Add');
  const withErf = await fused(activated(Object.values(erfForms)[0]!));
  expect(types(withErf)).toContain('Gelu');
  expect(types(withErf)).not.toContain('Add');
});

test('a result with other readers, or that is an output, is not fused away', async () => {
  const nodes = await fused((graph) => {
    const x = graph.input('x', FLOAT, [4, 8]);
    const product = graph.node('MatMul', [x, graph.weight('w', [8, 16], zeros(128))]);
    graph.output(product, FLOAT, [4, 16], 'raw');
    graph.output(graph.node('Relu', [product]), FLOAT, [4, 16], 'y');
  });
  expect(types(nodes)).toEqual(['MatMul', 'Relu']);
});

/** A product by `NAME.weight`, plus `NAME.bias`. */
function projection(graph: GraphBuilder, x: string, name: string, columns = 8, bias = true): string {
  const product = graph.node('MatMul', [x, graph.weight(`${name}.weight`, [8, columns], zeros(8 * columns))]);
  return bias ? graph.node('Add', [product, graph.weight(`${name}.bias`, [columns], zeros(columns))]) : product;
}

test('the projections of one input become one batch, in the position of the first', async () => {
  const all = await fused((graph) => {
    const x = graph.node('Tanh', [graph.input('x', FLOAT, [1, 4, 8])]);
    const early = graph.node('Sigmoid', [projection(graph, x, 'q')]);
    const k = graph.node('Relu', [graph.node('Add', [early, projection(graph, x, 'k')])]);
    graph.output(graph.node('Mul', [k, projection(graph, x, 'v')]), FLOAT, [1, 4, 8], 'y');
  });
  const nodes = all.filter(({ type }) => type !== 'Reshape');
  expect(types(nodes)).toEqual(['Tanh', 'turntable.JointProduct', 'Sigmoid', 'Add', 'Relu', 'Mul']);
  const [, joint] = nodes;
  expect(attributeOf(joint!.proto, 'count', 0)).toBe(3);
  const named = ['q.weight', 'k.weight', 'v.weight', 'q.bias', 'k.bias', 'v.bias'];
  expect(joint!.proto.input.slice(1)).toEqual(named);
});

test('projections with different shapes, different inputs, or only one bias are not a batch', async () => {
  const nodes = await fused((graph) => {
    const x = graph.node('Tanh', [graph.input('x', FLOAT, [1, 4, 8])]);
    const z = graph.node('Tanh', [graph.input('z', FLOAT, [1, 4, 8])]);
    const all = [
      projection(graph, x, 'q'),
      projection(graph, z, 'other'),
      projection(graph, x, 'plain', 8, false),
      projection(graph, x, 'wide', 16),
    ].map((value) => graph.node('ReduceSum', [value], { keepdims: 0 }));
    graph.output(graph.node('Sum', all), FLOAT, [], 'y');
  });
  expect(types(nodes)).not.toContain('turntable.JointProduct');
});

test('a projection that is an output is not part of a batch', async () => {
  const nodes = await fused((graph) => {
    const x = graph.node('Tanh', [graph.input('x', FLOAT, [1, 4, 8])]);
    graph.output(projection(graph, x, 'q', 8, false), FLOAT, [1, 4, 8], 'first');
    graph.output(projection(graph, x, 'k', 8, false), FLOAT, [1, 4, 8], 'second');
  });
  expect(types(nodes)).not.toContain('turntable.JointProduct');
});

interface Attended {
  readonly rows?: number;
  readonly size?: number;
  /** Applied to the scores before the softmax, to the shares behind it, and to the values before their product. */
  readonly scores?: Value;
  readonly shares?: Value;
  readonly values?: Value;
  readonly axis?: number;
  /** Permutation of the result. */
  readonly perm?: readonly number[];
}

/** Attention of 4 heads as in GPT-2: Q, K and V are parts of one projection. */
const attended =
  ({ rows = 20, size = 8, scores, shares, values, axis = -1, perm = [0, 2, 1, 3] }: Attended) =>
  (graph: GraphBuilder): void => {
    const x = graph.input('x', FLOAT, [1, rows, 12 * size]);
    const sizes = graph.constant({ ints: [4 * size, 4 * size, 4 * size] });
    const [q, k, v] = graph.node('Split', [x, sizes], { axis: 2 }, { outputs: 3 }).map((part, index) => {
      const split = graph.node('Reshape', [part, graph.constant({ ints: [0, 0, 4, size] })]);
      return graph.node('Transpose', [split], { perm: index === 1 ? [0, 2, 3, 1] : [0, 2, 1, 3] });
    });
    const scaled = graph.node('Div', [graph.node('MatMul', [q!, k!]), scalar(graph, Math.sqrt(size))]);
    const softmax = graph.node('Softmax', [scores?.(scaled, graph) ?? scaled], { axis });
    const context = graph.node('MatMul', [shares?.(softmax, graph) ?? softmax, values?.(v!, graph) ?? v!]);
    const joined = graph.node('Transpose', [context], { perm });
    graph.output(graph.node('Reshape', [joined, graph.constant({ ints: [0, 0, -1] })]), FLOAT, [1, 'a', 'b'], 'y');
  };

test('attention becomes one kernel, without transposes and without the split before it', async () => {
  const nodes = await fused(attended({}));
  expect(types(nodes)).toEqual(['turntable.Attention', 'Reshape']);
  const { proto } = nodes[0]!;
  expect(proto.input).toEqual(['x', 'x', 'x']);
  expect(attributeOf(proto, 'q', [0])).toEqual([0, 96, 8, 1920]);
  expect(attributeOf(proto, 'k', [0])).toEqual([32, 96, 8, 1920]);
  expect(attributeOf(proto, 'v', [0])).toEqual([64, 96, 8, 1920]);
  expect(attributeOf(proto, 'y', [0])).toEqual([0, 32, 8, 640]);
  expect(attributeOf(proto, 'scale', 0)).toBeCloseTo(1 / Math.sqrt(8), 6);
});

const masked: Value = (x, graph) => graph.node('Add', [x, graph.input('mask', FLOAT, [1, 1, 1, 20])]);
const hiddenLater: Value = (x, graph) =>
  graph.node('Where', [graph.input('seen', ElementType.BOOL, [20, 20]), x, scalar(graph, -3.4028234663852886e38)]);
const numbersOnly: Value = (x, graph) => graph.node('Where', [graph.node('IsNaN', [x]), scalar(graph, 0), x]);

test.each<[string, Attended, number]>([
  ['a mask that is added', { scores: masked }, 4],
  ['a mask that replaces', { scores: hiddenLater }, 4],
  ['zeros for NaN', { scores: masked, shares: numbersOnly }, 4],
])('attention includes %s', async (_what, form, inputs) => {
  const nodes = await fused(attended(form));
  const attention = nodes.find(({ type }) => type === 'turntable.Attention');
  expect(attention?.proto.input).toHaveLength(inputs);
  expect(attributeOf(attention!.proto, 'noNan', 0)).toBe(form.shares === undefined ? 0 : 1);
  expect(types(nodes).filter((type) => type.includes('Softmax') || type === 'IsNaN')).toEqual([]);
});

test('attention without a batch axis becomes one kernel', async () => {
  const nodes = await fused((graph) => {
    const heads = ['q', 'k', 'v'].map((name) => graph.input(name, FLOAT, [20, 6, 8]));
    const [q, k, v] = heads.map((x, index) =>
      graph.node('Transpose', [x], { perm: index === 1 ? [1, 2, 0] : [1, 0, 2] }),
    );
    const shares = graph.node('Softmax', [graph.node('MatMul', [q!, k!])], { axis: 2 });
    const context = graph.node('Transpose', [graph.node('MatMul', [shares, v!])], { perm: [1, 0, 2] });
    graph.output(context, FLOAT, [20, 6, 8], 'y');
  });
  expect(types(nodes)).toEqual(['turntable.Attention']);
  expect(attributeOf(nodes[0]!.proto, 'q', [0])).toEqual([0, 48, 8, 960]);
});

const taken: Value = (x, graph) => {
  graph.output(x, FLOAT, [1, 4, 20, 20], 'taken');
  return x;
};
const apart: readonly [string, Attended, ProgramSettings['precision']?][] = [
  ['scores leave the graph', { scores: taken }],
  ['shares leave the graph', { shares: taken }],
  ['scores are taken elsewhere', { scores: (x, g) => g.node('Add', [x, g.node('ReduceMax', [x])]) }],
  ['shares are changed', { shares: (x, g) => g.node('Sqrt', [x]) }],
  [
    'shares become something else than zeros',
    { shares: (x, g) => g.node('Where', [g.node('IsNaN', [x]), scalar(g, 1), x]) },
  ],
  ['the softmax is of columns', { axis: 2 }],
  ['heads are too large', { size: 260 }],
  ['the values are transposed', { values: (x, g) => g.node('Transpose', [x], { perm: [0, 1, 3, 2] }), rows: 8 }],
  ['tensor cores make the products in TF32', {}, 'tf32'],
  ['tensor cores make the products in 16 bits', {}, 'fp16'],
];

test.each(apart)('attention stays two products if %s', async (_why, form, precision = 'exact') => {
  const nodes = types(await fused(attended(form), { precision }));
  expect(nodes).not.toContain('turntable.Attention');
  expect(nodes.filter((type) => type === 'turntable.HeadProduct').length).toBeGreaterThan(0);
});

test('attention of few rows becomes one kernel at every precision', async () => {
  for (const precision of ['tf32', 'fp16', 'bf16'] as const) {
    expect(types(await fused(attended({ rows: 16 }), { precision }))).toContain('turntable.Attention');
  }
});

test('a mask by Where is made once for all layers, and added in the softmax', async () => {
  const nodes = await fused((graph) => {
    const x = graph.input('x', FLOAT, [1, 2, 4, 4]);
    const seen = graph.input('seen', ElementType.BOOL, [1, 1, 4, 4]);
    const low = scalar(graph, -3.4028234663852886e38);
    let y = x;
    for (let layer = 0; layer < 3; layer++) {
      y = graph.node('Softmax', [graph.node('Where', [seen, graph.node('Mul', [y, y]), low])], { axis: -1 });
    }
    graph.output(y, FLOAT, [1, 2, 4, 4], 'y');
  });
  expect(types(nodes).filter((type) => type === 'Where')).toHaveLength(1);
  expect(types(nodes).filter((type) => type === 'turntable.MaskedSoftmax')).toHaveLength(3);
});

test('a residual sum is fused with its normalisation, and is still an output for the next block', async () => {
  const nodes = await fused((graph) => {
    const x = graph.input('x', FLOAT, [4, 8]);
    const branch = graph.node('Tanh', [x]);
    const sum = graph.node('Add', [branch, x]);
    const normed = graph.node('LayerNormalization', [
      sum,
      graph.weight('s', [8], zeros(8)),
      graph.weight('b', [8], zeros(8)),
    ]);
    graph.output(graph.node('Add', [sum, graph.node('Sigmoid', [normed])]), FLOAT, [4, 8], 'y');
  });
  expect(types(nodes)).toEqual(['Tanh', 'turntable.AddLayerNormalization', 'Sigmoid', 'Add']);
  expect(nodes[1]!.outputs).toHaveLength(2);
});

test('batch normalisation becomes elementwise, and Clip is fused with the convolution before it', async () => {
  const nodes = await fused((graph) => {
    const x = graph.input('x', FLOAT, [1, 4, 6, 6]);
    const conv = (name: string, value: string): string =>
      graph.node('Conv', [value, graph.weight(name, [4, 4, 1, 1], zeros(16))], { kernel_shape: [1, 1] });
    const parameters = ['s', 'b', 'm', 'v'].map((name) => graph.weight(name, [4], zeros(4)));
    const normed = graph.node('BatchNormalization', [conv('w1', x), ...parameters]);
    const relu = graph.node('Relu', [graph.node('Add', [normed, x])]);
    const clipped = graph.node('Clip', [conv('w2', relu), scalar(graph, 0), scalar(graph, 6)]);
    graph.output(clipped, FLOAT, [1, 4, 6, 6], 'y');
  });
  expect(types(nodes)).toEqual(['Conv', 'turntable.ScaleShift', 'Add', 'Relu', 'turntable.Conv']);
});

test('an operator that is made of others joins the kernels of its neighbours', async () => {
  const nodes = await fused((graph) => {
    const x = graph.input('x', FLOAT, [4, 8]);
    const turned = graph.node('SpaceToDepth', [graph.node('Reshape', [x, graph.constant({ ints: [1, 2, 4, 4] })])], {
      blocksize: 2,
    });
    const kept = graph.node('Trilu', [graph.node('Tanh', [turned])]);
    graph.output(graph.node('Relu', [kept]), FLOAT, [1, 8, 2, 2], 'y');
  });
  expect(types(nodes)).toEqual([
    'Reshape',
    'turntable.View',
    'Transpose',
    'turntable.View',
    'Tanh',
    'Sub',
    'Less',
    'Where',
    'Relu',
  ]);
  expect(nodes.at(-2)!.label).toMatch(/^Trilu /);
});

test('an operator that is made of others is refused in its own name', async () => {
  const graph = new GraphBuilder('refused');
  const x = graph.input('x', FLOAT, [2, 3, 4]);
  graph.output(graph.node('DepthToSpace', [x], { blocksize: 1 }, { name: 'blocks' }), FLOAT, [2, 3, 4], 'y');
  const [node] = graph.build().graph.node;
  const value = { datatype: 'FP32', shape: [2, 3, 4] } as const;
  const prepared = {
    base: { weights: [] },
    shapes: [],
    opset: 17,
    nodes: [{ proto: node!, name: 'blocks', uses: ['x'], outputs: ['y'], constant: false, layer: 0 }],
    inputs: ['x'],
    outputs: ['y'],
    values: new Map([x, 'y'].map((name) => [name, value])),
    constants: new Map(),
    weights: new Map(),
    obstacles: [],
  } as unknown as ConstructorParameters<typeof WorkGraph>[0];
  expect(writeOut(new WorkGraph(prepared), byType, new Set())).toEqual([
    { node: 'blocks', operator: 'DepthToSpace', reason: "'x' has 3 dimensions, not 4" },
  ]);
});
