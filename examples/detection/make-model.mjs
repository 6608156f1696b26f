// Writes model.onnx: a detector of bright things of two sizes, with the inputs and outputs of an SSD.
import { join } from 'node:path';
// In a project of its own: 'turntable/onnx'. `turntable init` says where the model goes.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const graph = new GraphBuilder('bright');
const image = graph.input('image', ElementType.FLOAT, ['batch', 128, 128, 3]);
const channelsFirst = graph.node('Transpose', [image], { perm: [0, 3, 1, 2] });
// Brightness from 0 to 1.
const grey = graph.node('Conv', [
  channelsFirst,
  graph.weight('grey', [1, 3, 1, 1], Float32Array.from([0.299, 0.587, 0.114].map((part) => part / 2))),
  graph.weight('middle', [1], Float32Array.of(0.5)),
]);

/** The mean of a window of this height and width, that many pixels up and left of each of 16 x 16 cells. */
function means([height, width], [up, left]) {
  const pads = [up, left, height - up - 8, width - left - 8];
  return graph.node('AveragePool', [grey], {
    kernel_shape: [height, width],
    strides: [8, 8],
    pads,
    count_include_pad: 1,
  });
}

const number = (value) => graph.constant({ floats: [value] });
/** How much brighter a window is than the 8 pixels around it. */
function contrast([height, width], [up, left]) {
  const [inside, all] = [height * width, (height + 16) * (width + 16)];
  const inner = means([height, width], [up, left]);
  const outer = means([height + 16, width + 16], [up + 8, left + 8]);
  const ring = graph.node('Sub', [
    graph.node('Mul', [outer, number(all / (all - inside))]),
    graph.node('Mul', [inner, number(inside / (all - inside))]),
  ]);
  return graph.node('Sub', [inner, ring]);
}

// A box of 32 x 32 and one of 16 wide and 24 high, both 4 pixels left of the middle of their cells.
const contrasts = graph.node('Concat', [contrast([32, 32], [16, 16]), contrast([24, 16], [8, 8])], { axis: 1 });
const logits = graph.node('Sub', [graph.node('Mul', [contrasts, number(20)]), number(11)]);
const last = graph.node('Transpose', [graph.node('Sigmoid', [logits])], { perm: [0, 2, 3, 1] });
const scores = graph.node('Reshape', [last, graph.constant({ ints: [0, 512, 1] })]);
// From the anchors of 32 x 32 and 16 x 32 to those boxes.
const offsets = [-1.25, -1.25, 0, 0, -2.5, 0, 0, 5 * Math.log(24 / 32)];
const repeated = Float32Array.from({ length: 512 * 4 }, (_, at) => offsets[at % 8]);
const none = graph.node('Mul', [scores, graph.weight('none', [1, 1, 4], new Float32Array(4))]);
const boxes = graph.node('Add', [none, graph.weight('offsets', [1, 512, 4], repeated)]);
graph.output(boxes, ElementType.FLOAT, ['batch', 512, 4], 'boxes');
graph.output(scores, ElementType.FLOAT, ['batch', 512, 1], 'scores');
await writeModel(graph.build(), join(process.argv[2] ?? import.meta.dirname, 'model.onnx'));
