// Writes model.onnx, which scores squares of 8 pixels by their brightness.
import { join } from 'node:path';
// In a project of its own: 'turntable/onnx'. `turntable init` says where the model goes.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const graph = new GraphBuilder('bright');
const pixels = graph.input('pixels', ElementType.FLOAT, ['batch', 3, 128, 128]);
const grey = graph.node('Conv', [
  pixels,
  graph.weight('grey', [1, 3, 1, 1], Float32Array.from([0.299, 0.587, 0.114].map((part) => 20 * part))),
  graph.weight('threshold', [1], Float32Array.from([-12])),
]);
const squares = graph.node('AveragePool', [grey], { kernel_shape: [8, 8], strides: [8, 8] });
graph.output(graph.node('Sigmoid', [squares]), ElementType.FLOAT, ['batch', 1, 16, 16], 'scores');
await writeModel(graph.build(), join(process.argv[2] ?? import.meta.dirname, 'model.onnx'));
