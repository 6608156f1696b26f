/** Generated models whose rows are known to be independent of each other, or known to mix. */
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel, type ModelProto } from '../../src/onnx/index.ts';
import { numbersOf, tensorOf } from '../../src/tensor/index.ts';
import { mix32 } from '../../src/tools/index.ts';
import { runOnnxRuntime } from './run-program.ts';

const { FLOAT } = ElementType;
/** Columns of every value; rows are open. */
export const columns = 4;

type Step = (graph: GraphBuilder, x: string, random: () => number) => string;

const number = (graph: GraphBuilder, value: number): string => graph.constant({ floats: value });
const whole = (graph: GraphBuilder, ...values: number[]): string => graph.constant({ ints: values });
let weights = 0;
const weight = (graph: GraphBuilder, shape: readonly number[], random: () => number): string =>
  graph.weight(
    `w${weights++}`,
    shape,
    Float32Array.from({ length: shape.reduce((product, size) => product * size, 1) }, () => random() * 2 - 1),
  );
const flat = (graph: GraphBuilder, x: string): string => graph.node('Reshape', [x, whole(graph, -1, columns)]);

/** A body of an If that gives `x` times a factor. */
function scaledBody(name: string, x: string, factor: number): ReturnType<GraphBuilder['buildGraph']> {
  const body = new GraphBuilder(name, { captures: [x] });
  const y = body.scope(`${name}${weights++}`, () => body.node('Mul', [x, number(body, factor)]));
  body.output(y, FLOAT, ['?', columns], `${name}${weights}_y`);
  return body.buildGraph();
}

/** Each treats rows one by one. */
export const independentSteps: Readonly<Record<string, Step>> = {
  scale: (graph, x, random) => graph.node('Mul', [x, number(graph, random() * 2 - 1)]),
  bias: (graph, x, random) => graph.node('Add', [x, weight(graph, [columns], random)]),
  relu: (graph, x) => graph.node('Relu', [x]),
  tanh: (graph, x) => graph.node('Tanh', [x]),
  product: (graph, x, random) => graph.node('MatMul', [x, weight(graph, [columns, columns], random)]),
  gemm: (graph, x, random) =>
    graph.node('Gemm', [x, weight(graph, [columns, columns], random), weight(graph, [columns], random)], { transB: 1 }),
  softmax: (graph, x) => graph.node('Softmax', [x], { axis: -1 }),
  center: (graph, x) => graph.node('Sub', [x, graph.node('ReduceMean', [x], { axes: [1] })]),
  'turn twice': (graph, x) =>
    graph.node('Transpose', [graph.node('Neg', [graph.node('Transpose', [x], { perm: [1, 0] })])], { perm: [1, 0] }),
  'reverse columns': (graph, x) =>
    graph.node('Slice', [x, whole(graph, -1), whole(graph, -99), whole(graph, 1), whole(graph, -1)]),
  'threshold by element': (graph, x, random) =>
    graph.node('Where', [graph.node('Greater', [x, number(graph, random())]), x, graph.node('Neg', [x])]),
  'best of a row': (graph, x) =>
    graph.node(
      'Concat',
      graph
        .node('TopK', [x, whole(graph, 2)], {}, { outputs: 2 })
        .slice(0, 1)
        .flatMap((y) => [y, y]),
      { axis: 1 },
    ),
  'shape by shapes': (graph, x) => {
    const rows = graph.node('Gather', [graph.node('Shape', [x]), graph.constant({ ints: 0 })]);
    const shape = graph.node('Concat', [graph.node('Unsqueeze', [rows, whole(graph, 0)]), whole(graph, 2, 2)], {
      axis: 0,
    });
    const halves = graph.node('ReduceSum', [graph.node('Reshape', [x, shape]), whole(graph, 2)], { keepdims: 1 });
    return flat(graph, graph.node('Add', [graph.node('Reshape', [x, shape]), halves]));
  },
  'static quantization': (graph, x) => {
    const [scale, zero] = [
      number(graph, 0.05),
      graph.constant({ tensor: tensorOf('', 'UINT8', [], Uint8Array.of(128)) }),
    ];
    return graph.node('DequantizeLinear', [graph.node('QuantizeLinear', [x, scale, zero]), scale, zero]);
  },
  'convolution over columns': (graph, x, random) => {
    const wide = graph.node('Unsqueeze', [x, whole(graph, 1)]);
    return graph.node('Squeeze', [
      graph.node('Conv', [wide, weight(graph, [1, 1, 3], random)], { pads: [1, 1] }),
      whole(graph, 1),
    ]);
  },
  'an If on a constant': (graph, x) => {
    const yes = graph.constant({ tensor: tensorOf('', 'BOOL', [], Uint8Array.of(1)) });
    return graph.node('If', [graph.node('Identity', [yes])], {
      then_branch: { graph: scaledBody('then', x, 2) },
      else_branch: { graph: scaledBody('other', x, 3) },
    });
  },
  'running sum in a row': (graph, x) => graph.node('CumSum', [x, graph.constant({ ints: 1 })]),
};

/** Each lets a row see others, many of them only for some values. */
export const mixingSteps: Readonly<Record<string, Step>> = {
  'mean of the rows': (graph, x) => graph.node('Sub', [x, graph.node('ReduceMean', [x], { axes: [0] })]),
  'softmax over rows': (graph, x) => graph.node('Softmax', [x], { axis: 0 }),
  'threshold on the maximum': (graph, x, random) => {
    const most = graph.node('ReduceMax', [x], { keepdims: 0 });
    const isHigh = graph.node('Greater', [most, number(graph, 20 + 2000 * random())]);
    return graph.node('Where', [isHigh, graph.node('Mul', [x, number(graph, 2)]), x]);
  },
  'an If on the maximum': (graph, x, random) => {
    const isHigh = graph.node('Greater', [
      graph.node('ReduceMax', [x], { keepdims: 0 }),
      number(graph, 20 + 2000 * random()),
    ]);
    return graph.node('If', [isHigh], {
      then_branch: { graph: scaledBody('high', x, 2) },
      else_branch: { graph: scaledBody('low', x, 1) },
    });
  },
  'a maximum inside an If': (graph, x, random) => {
    const yes = graph.node('Identity', [graph.constant({ tensor: tensorOf('', 'BOOL', [], Uint8Array.of(1)) })]);
    const body = new GraphBuilder('inner', { captures: [x] });
    const y = body.scope('inner', () => {
      const most = body.node('ReduceMax', [x], { keepdims: 0 });
      const isHigh = body.node('Greater', [most, number(body, 20 + 2000 * random())]);
      return body.node('Where', [isHigh, body.node('Neg', [x]), x]);
    });
    body.output(y, FLOAT, ['?', columns], 'inner_y');
    return graph.node('If', [yes], {
      then_branch: { graph: body.buildGraph() },
      else_branch: { graph: scaledBody('outer', x, 1) },
    });
  },
  'dynamic quantization': (graph, x) => {
    const [quantized, scale, zero] = graph.node('DynamicQuantizeLinear', [x], {}, { outputs: 3 });
    return graph.node('DequantizeLinear', [quantized, scale, zero]);
  },
  'sum down the rows': (graph, x) => graph.node('CumSum', [x, graph.constant({ ints: 0 })]),
  'the first row': (graph, x) => graph.node('Add', [x, graph.node('Gather', [x, graph.constant({ ints: 0 })])]),
  'the last row first': (graph, x) =>
    graph.node('Slice', [x, whole(graph, -1), whole(graph, -99), whole(graph, 0), whole(graph, -1)]),
  'all pairs': (graph, x) => {
    const products = graph.node('MatMul', [x, graph.node('Transpose', [x], { perm: [1, 0] })]);
    return graph.node('MatMul', [graph.node('Softmax', [products], { axis: -1 }), x]);
  },
  'number of rows': (graph, x) => {
    const rows = graph.node('Cast', [graph.node('Gather', [graph.node('Shape', [x]), whole(graph, 0)])], { to: FLOAT });
    return graph.node('Mul', [x, rows]);
  },
  'place among the rows': (graph, x) => {
    const scalar = (value: number): string => graph.constant({ ints: value });
    const rows = graph.node('Gather', [graph.node('Shape', [x]), scalar(0)]);
    const places = graph.node('Cast', [graph.node('Range', [scalar(0), rows, scalar(1)])], { to: FLOAT });
    return graph.node('Mul', [x, graph.node('Unsqueeze', [graph.node('Exp', [places]), whole(graph, 1)])]);
  },
  'largest over rows by pooling': (graph, x) => {
    const wide = graph.node('Unsqueeze', [graph.node('Transpose', [x], { perm: [1, 0] }), whole(graph, 0)]);
    const most = graph.node('Squeeze', [graph.node('GlobalMaxPool', [wide]), whole(graph, 0, 2)]);
    return graph.node('Min', [x, graph.node('Add', [most, number(graph, -3)])]);
  },
  'convolution over rows': (graph, x, random) => {
    const wide = graph.node('Unsqueeze', [graph.node('Transpose', [x], { perm: [1, 0] }), whole(graph, 0)]);
    const found = graph.node('Conv', [wide, weight(graph, [columns, 1, 3], random)], { pads: [1, 1], group: columns });
    return graph.node('Transpose', [graph.node('Squeeze', [found, whole(graph, 0)])], { perm: [1, 0] });
  },
  'rank among the rows': (graph, x) => {
    const order = graph.node(
      'TopK',
      [x, graph.node('Gather', [graph.node('Shape', [x]), whole(graph, 0)])],
      { axis: 0 },
      { outputs: 2 },
    );
    return order[0];
  },
};

export interface RowModel {
  readonly steps: readonly string[];
  readonly isMixing: boolean;
  readonly model: ModelProto;
}

function randomOf(seed: number): () => number {
  let state = mix32(seed);
  return () => (state = mix32(state + 0x9e3779b9)) / 2 ** 32;
}

/** One input 'x' and one output 'y', FP32 [n, 4]. */
export function modelOfSteps(steps: readonly string[], seed: number): ModelProto {
  const random = randomOf(seed);
  const graph = new GraphBuilder('rows');
  let value = graph.input('x', FLOAT, ['n', columns]);
  for (const step of steps) value = (independentSteps[step] ?? mixingSteps[step]!)(graph, value, random);
  graph.output(value, FLOAT, ['n', columns], 'y');
  return graph.build();
}

export function rowModel(seed: number, isMixing: boolean): RowModel {
  const random = randomOf(seed);
  const pick = (from: object): string => Object.keys(from)[Math.floor(random() * Object.keys(from).length)]!;
  const steps = Array.from({ length: 1 + Math.floor(random() * 4) }, () => pick(independentSteps));
  // A mixing step comes first: behind a softmax nothing is large.
  if (isMixing) steps.unshift(pick(mixingSteps));
  return { steps, isMixing, model: modelOfSteps(steps, seed + 1) };
}

/** Steps may leave nothing of what rows see of each other, as Relu of what is below 0 does. */
export async function isConstant(model: ModelProto, folder: string): Promise<boolean> {
  const path = join(folder, 'constant.onnx');
  await writeModel(model, path);
  const rows = [
    [0, 0, 0, 0],
    [3, -2, 9, 1],
    [-5000, 4, -1, 7000],
    [-0.1, 0.2, -0.3, 0.4],
  ];
  const answers: (number | bigint)[][] = [];
  for (const row of rows) {
    const outputs = await runOnnxRuntime(path, [tensorOf('x', 'FP32', [1, columns], Float32Array.from(row))]);
    answers.push(outputs.flatMap((y) => Array.from<number | bigint>(numbersOf(y))));
  }
  // 0 and -0 are the same.
  return answers.every((answer) => answer.every((value, at) => value === answers[0]![at]));
}
