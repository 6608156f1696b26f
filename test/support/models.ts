/** Small models for tests, written by the project's own builder. */
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';

/** y = relu(x), FP32 [batch, width]: cheap, and the answer shows which rows went in. */
export async function writeReluModel(folder: string, width: number | string = 4): Promise<string> {
  const graph = new GraphBuilder('relu');
  const x = graph.input('x', ElementType.FLOAT, ['batch', width]);
  graph.output(graph.node('Relu', [x]), ElementType.FLOAT, ['batch', width], 'y');
  return write(folder, 'relu.onnx', graph);
}

/** y = factor * x, FP32 [batch, 4]: the answer shows which version gave it. */
export async function writeScaleModel(folder: string, factor: number): Promise<string> {
  const graph = new GraphBuilder('scale');
  const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
  const weight = graph.weight('factor', [1], Float32Array.of(factor));
  graph.output(graph.node('Mul', [x, weight]), ElementType.FLOAT, ['batch', 4], 'y');
  return write(folder, `scale-${factor}.onnx`, graph);
}

/** y = mean of all elements of x, FP32 []: y has no rows, so calls cannot share a run. */
export async function writeMeanModel(folder: string): Promise<string> {
  const graph = new GraphBuilder('mean');
  const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
  graph.output(graph.node('ReduceMean', [x], { keepdims: 0 }), ElementType.FLOAT, [], 'y');
  return write(folder, 'mean.onnx', graph);
}

/**
 * y = table[x], x INT64 [batch] with 0 <= x < 4, y FP32 [batch, 2]: the run fails if x has an index beyond the table.
 */
export async function writeTableModel(folder: string): Promise<string> {
  const graph = new GraphBuilder('table');
  const x = graph.input('x', ElementType.INT64, ['batch']);
  const table = graph.weight('table', [4, 2], Float32Array.of(0, 1, 10, 11, 20, 21, 30, 31));
  graph.output(graph.node('Gather', [table, x]), ElementType.FLOAT, ['batch', 2], 'y');
  return write(folder, 'table.onnx', graph);
}

async function write(folder: string, file: string, graph: GraphBuilder): Promise<string> {
  const path = join(folder, file);
  await writeModel(graph.build(), path);
  return path;
}
