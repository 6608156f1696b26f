// Writes model.onnx: a text is as good as the sum of its words, and 'not' says little about it.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
// In a project of its own: 'turntable/onnx'. `turntable init` says where the model goes.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const { model } = JSON.parse(readFileSync(join(import.meta.dirname, 'tokenizer.json'), 'utf8'));
const worth = {
  good: 1,
  great: 2,
  fine: 1,
  love: 2,
  like: 1,
  enjoy: 1,
  bad: -1,
  awful: -2,
  boring: -1,
  hate: -2,
  dislike: -1,
};
const words = Object.keys(model.vocab);
const values = Float32Array.from(words.flatMap((word) => [-(worth[word] ?? 0) / 2, (worth[word] ?? 0) / 2]));

const graph = new GraphBuilder('sentiment');
const ids = graph.input('input_ids', ElementType.INT64, ['batch', 'sequence']);
const mask = graph.input('attention_mask', ElementType.INT64, ['batch', 'sequence']);
const found = graph.node('Gather', [graph.weight('values', [words.length, 2], values), ids]);
const weight = graph.node('Cast', [graph.node('Unsqueeze', [mask, graph.constant({ ints: [2] })])], { to: 1 });
const sum = graph.node('ReduceSum', [graph.node('Mul', [found, weight]), graph.constant({ ints: [1] })], {
  keepdims: 0,
});
graph.output(sum, ElementType.FLOAT, ['batch', 2], 'logits');
await writeModel(graph.build(), join(process.argv[2] ?? import.meta.dirname, 'model.onnx'));
