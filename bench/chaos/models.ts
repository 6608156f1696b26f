/** Models whose answer shows which call it belongs to. */
import { ElementType, GraphBuilder, serializeModel } from '../../src/onnx/index.ts';

/** Whole numbers below this go through these models exactly: no sum in them exceeds the precision of float32. */
export const valuesMax = 2048;

/**
 * y = x through a matrix that is multiplied with others: some milliseconds of work, so that faults meet active runs.
 */
export function busyGraph({ rows, width, layers } = { rows: 16, width: 512, layers: 8 }): GraphBuilder {
  const graph = new GraphBuilder('busy');
  const x = graph.input('x', ElementType.FLOAT, [1, 1]);
  const ones = graph.weight('expand', [1, rows * width], new Float32Array(rows * width).fill(1));
  let hidden = graph.node('Reshape', [graph.node('MatMul', [x, ones]), graph.constant({ ints: [rows, width] })]);
  for (let layer = 0; layer < layers; layer++) {
    const weight = graph.weight(`layer.${layer}`, [width, width], new Float32Array(width * width).fill(1 / width));
    hidden = graph.node('MatMul', [hidden, weight]);
  }
  graph.output(graph.node('ReduceMean', [hidden], { axes: [0, 1] }), ElementType.FLOAT, [1, 1], 'y');
  return graph;
}

/** y = x + bias. */
export function sumGraph(bias: number): GraphBuilder {
  const graph = new GraphBuilder('sum');
  const x = graph.input('x', ElementType.FLOAT, [1, 1]);
  const weight = graph.weight('bias', [1, 1], new Float32Array([bias]));
  graph.output(graph.node('Add', [x, weight]), ElementType.FLOAT, [1, 1], 'y');
  return graph;
}

export const sumModel = (bias: number): Uint8Array => serializeModel(sumGraph(bias).build());

/** A handler that returns its JSON input unchanged. */
export const echoHandler = `
export function preprocess({ body }) {
  const { input } = JSON.parse(new TextDecoder().decode(body));
  return [{ name: 'x', datatype: 'FP32', shape: [1, 1], data: new Float32Array(input[0]) }];
}
export function postprocess([y]) {
  return { output: [[y.data[0]]] };
}
`;
