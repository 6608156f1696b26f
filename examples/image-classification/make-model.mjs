// Writes model.onnx, a network whose answers can be checked by eye.
import { join } from 'node:path';
// In a project of its own: 'turntable/onnx'. `turntable init` says where the model goes.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const graph = new GraphBuilder('colour');
const pixels = graph.input('pixels', ElementType.FLOAT, ['batch', 3, 224, 224]);
const mean = graph.node('Flatten', [graph.node('GlobalAveragePool', [pixels])]);
// From normalized values to -1, black, and 1.
const deviation = graph.weight('deviation', [3], Float32Array.from([0.229, 0.224, 0.225].map((each) => 2 * each)));
const middle = graph.weight('middle', [3], Float32Array.from([0.485, 0.456, 0.406].map((each) => 2 * each - 1)));
const colour = graph.node('Add', [graph.node('Mul', [mean, deviation]), middle]);
// A row per channel; the columns are red, green, blue and grey.
const weights = Float32Array.from([4, -2, -2, 0, -2, 4, -2, 0, -2, -2, 4, 0]);
const logits = graph.node('Gemm', [
  colour,
  graph.weight('weights', [3, 4], weights),
  graph.weight('bias', [4], Float32Array.from([0, 0, 0, 1])),
]);
graph.output(logits, ElementType.FLOAT, ['batch', 4], 'logits');
await writeModel(graph.build(), join(process.argv[2] ?? import.meta.dirname, 'model.onnx'));
