import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { cellsBehind, floats, unrolledAlike, wave } from '../../../test/support/unrolling.ts';
import { GraphBuilder, ElementType, type ModelProto } from '../../onnx/index.ts';

const { FLOAT } = ElementType;
const product = (shape: readonly number[]): number => shape.reduce((all, size) => all * size, 1);

/** A value between two recurrent nodes: its sizes, and which of them is time, in steps of `rows` places. */
interface Point {
  readonly value: string;
  readonly shape: readonly number[];
  readonly axis: number;
  readonly rows: number;
}

/** An operator that commutes with cutting along time; undefined if it does not fit the value. */
type Step = (graph: GraphBuilder, at: Point, choice: number) => Point | undefined;

const last = (shape: readonly number[]): number => shape[shape.length - 1]!;
let weights = 0;
const weight = (graph: GraphBuilder, shape: readonly number[], scale = 1): string =>
  graph.weight(`w${weights}`, shape, wave(shape, weights++, scale));
const ints = (graph: GraphBuilder, values: readonly number[]): string => graph.constant({ ints: values });
/** Any axis except time's; with `wide` only axes of at least two places. */
const otherAxis = ({ shape, axis }: Point, choice: number, wide = false): number | undefined => {
  const axes = shape.flatMap((size, each) => (each !== axis && (!wide || size > 1) ? [each] : []));
  return axes[choice % Math.max(1, axes.length)];
};

const unary: Step = (graph, at, choice) => {
  const type = ['Tanh', 'Relu', 'Sigmoid', 'Neg', 'Identity', 'Abs', 'Cosh', 'Asinh'][choice % 8]!;
  return { ...at, value: graph.node(type, [at.value]) };
};

const steps: Readonly<Record<string, Step>> = {
  unary,
  clip: (graph, at) => ({
    ...at,
    value: graph.node('Clip', [at.value, graph.constant({ floats: -0.4 }), graph.constant({ floats: 0.5 })]),
  }),
  cast: (graph, at) => ({ ...at, value: graph.node('Cast', [at.value], { to: FLOAT }) }),
  dropout: (graph, at) => ({ ...at, value: graph.node('Dropout', [at.value, graph.constant({ floats: 0.5 })]) }),
  'a vector added': (graph, at) => ({
    ...at,
    value: graph.node('Add', [weight(graph, at.axis === at.shape.length - 1 ? [1] : [last(at.shape)]), at.value]),
  }),
  'a constant of all steps multiplied': (graph, at) => ({
    ...at,
    value: graph.node('Mul', [
      at.value,
      weight(
        graph,
        at.shape.map((size, axis) => (axis === at.axis ? size : 1)),
      ),
    ]),
  }),
  'itself subtracted in part': (graph, at) => ({
    ...at,
    value: graph.node('Sub', [at.value, graph.node('Mul', [at.value, graph.constant({ floats: 0.3 })])]),
  }),
  where: (graph, at) => ({
    ...at,
    value: graph.node('Where', [
      graph.node('Greater', [at.value, graph.constant({ floats: 0 })]),
      at.value,
      graph.constant({ floats: [0.1], shape: [1] }),
    ]),
  }),
  transpose: (graph, at, choice) => {
    const perm = at.shape.map((_, axis) => axis);
    for (let place = perm.length - 1, left = choice; place > 0; place--) {
      const other = left % (place + 1);
      left = Math.floor(left / (place + 1));
      [perm[place], perm[other]] = [perm[other]!, perm[place]!];
    }
    const value = graph.node('Transpose', [at.value], { perm });
    return { ...at, value, shape: perm.map((axis) => at.shape[axis]!), axis: perm.indexOf(at.axis) };
  },
  unsqueeze: (graph, at, choice) => {
    const place = choice % (at.shape.length + 1);
    if (at.shape.length > 4) return undefined;
    return {
      ...at,
      value: graph.node('Unsqueeze', [at.value, ints(graph, [place - (choice % 2) * (at.shape.length + 1)])]),
      shape: at.shape.toSpliced(place, 0, 1),
      axis: at.axis + (place <= at.axis ? 1 : 0),
    };
  },
  squeeze: (graph, at) => {
    const place = at.shape.indexOf(1);
    if (place < 0 || place === at.axis || at.shape.length < 3) return undefined;
    return {
      ...at,
      value: graph.node('Squeeze', [at.value, ints(graph, [place])]),
      shape: at.shape.toSpliced(place, 1),
      axis: at.axis - (place < at.axis ? 1 : 0),
    };
  },
  'time merged with what follows': (graph, at, choice) => {
    const { shape, axis, rows } = at;
    if (axis === shape.length - 1) return undefined;
    const merged = shape.toSpliced(axis, 2, shape[axis]! * shape[axis + 1]!);
    const sizes = choice % 2 === 0 ? merged : merged.with(axis, -1);
    return {
      value: graph.node('Reshape', [at.value, ints(graph, sizes)]),
      shape: merged,
      axis,
      rows: rows * shape[axis + 1]!,
    };
  },
  'time parted from what it was merged with': (graph, at, choice) => {
    const { shape, axis, rows } = at;
    if (rows === 1 || shape.length > 4) return undefined;
    const parted = shape.toSpliced(axis, 1, shape[axis]! / rows, rows);
    const sizes = choice % 2 === 0 ? parted : parted.with(axis + 1, -1);
    return { value: graph.node('Reshape', [at.value, ints(graph, sizes)]), shape: parted, axis, rows: 1 };
  },
  'zeros for sizes that stay': (graph, at) => {
    const merged = [...at.shape.slice(0, -1), 1, last(at.shape)];
    if (at.shape.length > 4 || at.axis === at.shape.length - 1) return undefined;
    const sizes = [...at.shape.slice(0, -1).map(() => 0), 1, -1];
    return { ...at, value: graph.node('Reshape', [at.value, ints(graph, sizes)]), shape: merged };
  },
  flatten: (graph, at) => {
    const before = product(at.shape.slice(0, at.axis));
    if (before !== 1 || at.axis === at.shape.length - 1) return undefined;
    const shape = [at.shape[at.axis]!, product(at.shape.slice(at.axis + 1))];
    return { ...at, value: graph.node('Flatten', [at.value], { axis: at.axis + 1 }), shape, axis: 0 };
  },
  'a product with a matrix': (graph, at) => {
    if (at.axis === at.shape.length - 1 || at.shape.length < 2) return undefined;
    const inner = last(at.shape);
    return { ...at, value: graph.node('MatMul', [at.value, weight(graph, [inner, inner], 1 / Math.sqrt(inner))]) };
  },
  'a matrix before it': (graph, at) => {
    const inner = at.shape[at.shape.length - 2];
    if (at.axis !== at.shape.length - 1 || inner === undefined) return undefined;
    return { ...at, value: graph.node('MatMul', [weight(graph, [inner, inner], 1 / Math.sqrt(inner)), at.value]) };
  },
  'a product for each step': (graph, at) => {
    const inner = last(at.shape);
    if (at.axis >= at.shape.length - 2) return undefined;
    const batch = at.shape.slice(0, -2).map((size, axis) => (axis === at.axis ? size : 1));
    return { ...at, value: graph.node('MatMul', [at.value, weight(graph, [...batch, inner, inner], 0.5)]) };
  },
  gemm: (graph, at, choice) => {
    if (at.shape.length !== 2) return undefined;
    const inner = at.shape[1 - at.axis]!;
    const addend = choice % 3 === 0 ? [] : [weight(graph, choice % 3 === 1 ? [inner] : [at.shape[at.axis]!, inner])];
    const value = graph.node('Gemm', [at.value, weight(graph, [inner, inner], 0.5), ...addend], {
      transA: at.axis,
      transB: choice % 2,
    });
    return { ...at, value, shape: [at.shape[at.axis]!, inner], axis: 0 };
  },
  'a normalised layer': (graph, at) => {
    if (at.axis === at.shape.length - 1) return undefined;
    const size = last(at.shape);
    const value = graph.node('LayerNormalization', [at.value, weight(graph, [size]), weight(graph, [size])]);
    return { ...at, value };
  },
  'a normalised batch': (graph, at) => {
    if (at.axis === 1 || at.shape.length < 2) return undefined;
    const channels = at.shape[1]!;
    const ones = graph.weight(`ones${weights++}`, [channels], new Float32Array(channels).fill(1.5));
    const vector = (): string => weight(graph, [channels]);
    return { ...at, value: graph.node('BatchNormalization', [at.value, vector(), vector(), vector(), ones]) };
  },
  softmax: (graph, at, choice) => {
    const axis = otherAxis(at, choice);
    const type = ['Softmax', 'LogSoftmax', 'LpNormalization'][choice % 3]!;
    return axis === undefined ? undefined : { ...at, value: graph.node(type, [at.value], { axis }) };
  },
  'itself beside it': (graph, at, choice) => {
    const axis = otherAxis(at, choice);
    if (axis === undefined || product(at.shape) > 200) return undefined;
    const shape = at.shape.with(axis, at.shape[axis]! * 2);
    return { ...at, value: graph.node('Concat', [at.value, graph.node('Neg', [at.value])], { axis }), shape };
  },
  'halves added': (graph, at, choice) => {
    const axis = otherAxis(at, choice, true);
    if (axis === undefined || at.shape[axis]! % 2 !== 0) return undefined;
    const half = at.shape[axis]! / 2;
    const parts = graph.node('Split', [at.value, ints(graph, [half, half])], { axis }, { outputs: 2 });
    return { ...at, value: graph.node('Add', parts), shape: at.shape.with(axis, half) };
  },
  slice: (graph, at, choice) => {
    const axis = otherAxis(at, choice, true);
    if (axis === undefined) return undefined;
    const value = graph.node('Slice', [at.value, ints(graph, [1]), ints(graph, [99]), ints(graph, [axis])]);
    return { ...at, value, shape: at.shape.with(axis, at.shape[axis]! - 1) };
  },
  'one of an axis': (graph, at, choice) => {
    const axis = otherAxis(at, choice);
    if (axis === undefined || at.shape.length < 3) return undefined;
    const value = graph.node('Gather', [at.value, graph.constant({ ints: -1 })], { axis });
    return { ...at, value, shape: at.shape.toSpliced(axis, 1), axis: at.axis - (axis < at.axis ? 1 : 0) };
  },
  'a sum over an axis': (graph, at, choice) => {
    const axis = otherAxis(at, choice);
    if (axis === undefined || at.shape.length < 3) return undefined;
    const keepdims = choice % 2;
    const value = graph.node('ReduceSum', [at.value, ints(graph, [axis])], { keepdims });
    if (keepdims === 1) return { ...at, value, shape: at.shape.with(axis, 1) };
    return { ...at, value, shape: at.shape.toSpliced(axis, 1), axis: at.axis - (axis < at.axis ? 1 : 0) };
  },
  'a running sum over another axis': (graph, at, choice) => {
    const axis = otherAxis(at, choice);
    if (axis === undefined) return undefined;
    return { ...at, value: graph.node('CumSum', [at.value, graph.constant({ ints: axis })]) };
  },
  'the largest of another axis': (graph, at, choice) => {
    const axis = otherAxis(at, choice, true);
    if (axis === undefined) return undefined;
    const [value] = graph.node('TopK', [at.value, ints(graph, [1])], { axis }, { outputs: 2 });
    return { ...at, value, shape: at.shape.with(axis, 1) };
  },
  'another axis padded': (graph, at, choice) => {
    const axis = otherAxis(at, choice);
    if (axis === undefined || product(at.shape) > 200) return undefined;
    const before = at.shape.map((_, each) => (each === axis ? 1 : 0));
    const value = graph.node('Pad', [at.value, ints(graph, [...before, ...at.shape.map(() => 0)])]);
    return { ...at, value, shape: at.shape.with(axis, at.shape[axis]! + 1) };
  },
  'a mean over an axis': (graph, at, choice) => {
    const axis = otherAxis(at, choice);
    if (axis === undefined) return undefined;
    const value = graph.node('ReduceMean', [at.value], { axes: [axis - (choice % 2) * at.shape.length], keepdims: 1 });
    return { ...at, value, shape: at.shape.with(axis, 1) };
  },
};

const sequence = 5;
const batch = 2;

function recurrent(graph: GraphBuilder, x: string, input: number, hidden: number, name: string): string {
  const w = weight(graph, [1, 3 * hidden, input], 1 / Math.sqrt(input));
  const r = weight(graph, [1, 3 * hidden, hidden], 0.5);
  return graph.node('GRU', [x, w, r], { hidden_size: hidden }, { name, outputs: 1 })[0];
}

type Chosen = readonly (readonly [step: Step, choice: number])[];

/** Two recurrent nodes with these operators between them, and how many of those fitted. */
function between(chosen: Chosen) {
  const graph = new GraphBuilder('between');
  weights = 0;
  const x = graph.input('x', FLOAT, [sequence, batch, 3]);
  let at: Point = { value: recurrent(graph, x, 3, 4, 'first'), shape: [sequence, 1, batch, 4], axis: 0, rows: 1 };
  let applied = 0;
  for (const [step, choice] of chosen) {
    const next = step(graph, at, choice);
    if (next !== undefined) applied++;
    at = next ?? at;
  }
  // The form that the second node takes: time first, and everything else as its features.
  const front = [at.axis, ...at.shape.map((_, axis) => axis).filter((axis) => axis !== at.axis)];
  const turned = graph.node('Transpose', [at.value], { perm: front });
  const input = product(at.shape) / sequence;
  const series = graph.node('Reshape', [turned, ints(graph, [sequence, 1, input])]);
  const y = recurrent(graph, series, input, 3, 'second');
  graph.output(y, FLOAT, [sequence, 1, 1, 3], 'y');
  return { model: graph.build(), applied };
}

const inputs = { x: floats([sequence, batch, 3], 1) };

/** The cells that the second node's first one waits for; only the first of each node if nothing was joined. */
async function early(model: ModelProto, cell: number): Promise<readonly string[]> {
  const unrolled = await unrolledAlike(model, inputs, cell);
  const name = `step0-${cell - 1}`;
  return cellsBehind(unrolled, `/second/${name}`).map((each) => each.replace(`/${name}`, ' begins'));
}
const bothBegin = ['/first begins', '/second begins'];

/** Time as the last axis. */
const timeLast: Step = (graph, at) => {
  const perm = [...at.shape.map((_, axis) => axis).filter((axis) => axis !== at.axis), at.axis];
  const value = graph.node('Transpose', [at.value], { perm });
  return { ...at, value, shape: perm.map((axis) => at.shape[axis]!), axis: at.shape.length - 1 };
};

describe('between two recurrent nodes', () => {
  const { transpose, flatten, squeeze, 'time merged with what follows': merge } = steps;
  /** Operators that give the value another form first: none, a matrix, time in the middle, last, and merged. */
  const before: readonly Chosen[] = [
    [],
    [[flatten!, 0]],
    [[transpose!, 5]],
    [
      [squeeze!, 0],
      [timeLast, 0],
    ],
    [
      [squeeze!, 0],
      [merge!, 0],
    ],
  ];

  test.each(Object.entries(steps))('%s between two recurrent nodes is applied chunk by chunk', async (_, step) => {
    let fitting = 0;
    for (const [choice, first] of before.entries()) {
      const { model, applied } = between([...first, [step, choice]]);
      if (applied === first.length + 1) fitting++;
      expect(await early(model, 2)).toEqual(bothBegin);
    }
    expect(fitting).toBeGreaterThan(0);
  });

  test('any sequence of such operators is applied chunk by chunk', async () => {
    const step = fc.tuple(fc.constantFrom(...Object.values(steps)), fc.nat(1000));
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), fc.integer({ min: 1, max: 4 }), async (chosen, cell) => {
        expect(await early(between(chosen).model, cell)).toEqual(bothBegin);
      }),
      { numRuns: 60 },
    );
  });

  /** Operators that look at several steps at once; each keeps [sequence, 1, batch, 4]. */
  const across: Readonly<Record<string, (graph: GraphBuilder, x: string) => string>> = {
    'a softmax over time': (graph, x) => graph.node('Softmax', [x], { axis: 0 }),
    'a normalisation that includes time': (graph, x) =>
      graph.node('LayerNormalization', [x, weight(graph, [sequence, 1, batch, 4])], { axis: 0 }),
    'a normalisation of steps as channels': (graph, x) => {
      const turned = graph.node('Transpose', [x], { perm: [1, 0, 2, 3] });
      const vector = (): string => weight(graph, [sequence]);
      const spread = graph.weight(`spread${weights++}`, [sequence], new Float32Array(sequence).fill(2));
      const normed = graph.node('BatchNormalization', [turned, vector(), vector(), vector(), spread]);
      return graph.node('Transpose', [normed], { perm: [1, 0, 2, 3] });
    },
    'a mean over time taken away': (graph, x) =>
      graph.node('Sub', [x, graph.node('ReduceMean', [x], { axes: [0], keepdims: 1 })]),
    'a sum over all': (graph, x) => graph.node('Add', [x, graph.node('ReduceSum', [x], { keepdims: 1 })]),
    'an expansion to sizes that are given': (graph, x) =>
      graph.node('Expand', [x, ints(graph, [sequence, 1, batch, 4])]),
    'a running sum': (graph, x) => graph.node('CumSum', [x, graph.constant({ ints: 0 })]),
    'time turned around': (graph, x) =>
      graph.node('Slice', [x, ints(graph, [-1]), ints(graph, [-99]), ints(graph, [0]), ints(graph, [-1])]),
    'a product over time': (graph, x) => {
      const rows = graph.node('Reshape', [x, ints(graph, [sequence, batch * 4])]);
      const mixed = graph.node('MatMul', [weight(graph, [sequence, sequence]), rows]);
      return graph.node('Reshape', [mixed, ints(graph, [sequence, 1, batch, 4])]);
    },
    'steps next to each other': (graph, x) => {
      const halves = graph.node('Split', [x, ints(graph, [2, sequence - 2])], { axis: 0 }, { outputs: 2 });
      return graph.node('Concat', halves.toReversed(), { axis: 0 });
    },
    'a reshape across steps': (graph, x) => {
      const last = graph.node('Transpose', [x], { perm: [1, 2, 3, 0] });
      return graph.node('Reshape', [last, ints(graph, [sequence, 1, batch, 4])]);
    },
    'one step looked up for all': (graph, x) => {
      const first = graph.node('Gather', [x, ints(graph, [0, 0, 3, 1, 4])], { axis: 0 });
      return graph.node('Mul', [x, first]);
    },
  };

  test.each(Object.entries(across))('%s waits for the whole sequence', async (_, mix) => {
    const graph = new GraphBuilder('across');
    weights = 0;
    const x = graph.input('x', FLOAT, [sequence, batch, 3]);
    const mixed = mix(graph, recurrent(graph, x, 3, 4, 'first'));
    const features = graph.node('Reshape', [mixed, ints(graph, [sequence, batch, 4])]);
    graph.output(recurrent(graph, features, 4, 3, 'second'), FLOAT, [sequence, 1, batch, 3], 'y');
    const unrolled = await unrolledAlike(graph.build(), inputs, 2);
    const chunks = ['step0-1', 'step2-3', 'step4-4'];
    expect(cellsBehind(unrolled, '/second/step0-1')).toEqual([
      ...chunks.map((chunk) => `/first/${chunk}`),
      '/second/step0-1',
    ]);
  });

  test("a reshape that copies a size from time's place copies the whole size, not the chunk's", async () => {
    const graph = new GraphBuilder('copied-size');
    weights = 0;
    const x = graph.input('x', FLOAT, [sequence, 1, 3]);
    // As many hidden units as steps: [1, steps, units] becomes [steps, units, 1], whose second size is copied.
    const y = recurrent(graph, x, 3, sequence, 'first');
    const turned = graph.node('Transpose', [y], { perm: [1, 0, 2, 3] });
    const flat = graph.node('Squeeze', [turned, ints(graph, [2])]);
    const series = graph.node('Reshape', [flat, ints(graph, [-1, 0, 1])]);
    graph.output(recurrent(graph, series, 1, 3, 'second'), FLOAT, [sequence, 1, sequence, 3], 'y');
    const unrolled = await unrolledAlike(graph.build(), { x: floats([sequence, 1, 3], 1) }, 2);
    expect(cellsBehind(unrolled, '/second/step0-1')).toEqual(['/first/step0-1', '/second/step0-1']);
  });
});
