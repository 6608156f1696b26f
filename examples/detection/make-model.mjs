// Writes model.onnx, which scores squares of 8 pixels by their brightness, and photo.jpg with two bright things.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { encode } from 'jpeg-js';
// In a project of its own: 'turntable/onnx'.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const folder = import.meta.dirname;
const graph = new GraphBuilder('bright');
const pixels = graph.input('pixels', ElementType.FLOAT, ['batch', 3, 128, 128]);
const grey = graph.node('Conv', [
  pixels,
  graph.weight('grey', [1, 3, 1, 1], Float32Array.from([0.299, 0.587, 0.114].map((part) => 20 * part))),
  graph.weight('threshold', [1], Float32Array.from([-12])),
]);
const squares = graph.node('AveragePool', [grey], { kernel_shape: [8, 8], strides: [8, 8] });
graph.output(graph.node('Sigmoid', [squares]), ElementType.FLOAT, ['batch', 1, 16, 16], 'scores');
await writeModel(graph.build(), join(folder, 'model.onnx'));

const [width, height] = [256, 128];
const things = [
  { x: 32, y: 16, width: 64, height: 32 },
  { x: 176, y: 80, width: 32, height: 24 },
];
const data = new Uint8Array(4 * width * height);
for (let at = 0; at < width * height; at++) {
  const [x, y] = [at % width, Math.floor(at / width)];
  const isBright = things.some(
    (thing) => x >= thing.x && x < thing.x + thing.width && y >= thing.y && y < thing.y + thing.height,
  );
  data.set(isBright ? [250, 245, 220, 255] : [40, 50, 60, 255], 4 * at);
}
writeFileSync(join(folder, 'photo.jpg'), encode({ data, width, height }, 90).data);
