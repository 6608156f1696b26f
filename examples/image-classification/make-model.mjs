// Writes model.onnx, a network whose answers can be checked by eye, and photo.jpg to try it with.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { encode } from 'jpeg-js';
// In a project of its own: 'turntable/onnx'.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const folder = import.meta.dirname;
const graph = new GraphBuilder('colour');
const pixels = graph.input('pixels', ElementType.FLOAT, ['batch', 3, 32, 32]);
const mean = graph.node('Flatten', [graph.node('GlobalAveragePool', [pixels])]);
// A row per channel; the columns are red, green, blue and grey.
const weights = Float32Array.from([4, -2, -2, 0, -2, 4, -2, 0, -2, -2, 4, 0]);
const scores = graph.node('Gemm', [
  mean,
  graph.weight('weights', [3, 4], weights),
  graph.weight('bias', [4], Float32Array.from([0, 0, 0, 1])),
]);
graph.output(graph.node('Softmax', [scores]), ElementType.FLOAT, ['batch', 4], 'probabilities');
await writeModel(graph.build(), join(folder, 'model.onnx'));

// A red field with a darker border.
const [width, height] = [96, 64];
const data = new Uint8Array(4 * width * height);
for (let at = 0; at < width * height; at++) {
  const [x, y] = [at % width, Math.floor(at / width)];
  const shade = x < 4 || y < 4 || x >= width - 4 || y >= height - 4 ? 0.5 : 1;
  data.set([220 * shade, 40 * shade, 30 * shade, 255], 4 * at);
}
writeFileSync(join(folder, 'photo.jpg'), encode({ data, width, height }, 90).data);
