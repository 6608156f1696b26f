// Writes model.onnx: the average of a vector per token, so that sentences of the same words are alike.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
// In a project of its own: 'turntable/onnx'. `turntable init` says where the model goes.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const { model } = JSON.parse(readFileSync(join(import.meta.dirname, 'tokenizer.json'), 'utf8'));
const [words, width] = [Object.keys(model.vocab).length, 16];
// What stands for every sentence says nothing about one.
const silent = new Set(['[PAD]', '[CLS]', '[SEP]'].map((token) => model.vocab[token]));
let state = 1;
const random = () => {
  state = (state * 48271) % 2147483647;
  return state / 2147483647 - 0.5;
};
const vectors = Float32Array.from({ length: words * width }, (_, at) =>
  silent.has(Math.floor(at / width)) ? 0 : random(),
);

const graph = new GraphBuilder('embedding');
const ids = graph.input('input_ids', ElementType.INT64, ['batch', 'sequence']);
const mask = graph.input('attention_mask', ElementType.INT64, ['batch', 'sequence']);
const found = graph.node('Gather', [graph.weight('vectors', [words, width], vectors), ids]);
const weight = graph.node('Cast', [graph.node('Unsqueeze', [mask, graph.constant({ ints: [2] })])], { to: 1 });
const sum = graph.node('ReduceSum', [graph.node('Mul', [found, weight]), graph.constant({ ints: [1] })], {
  keepdims: 0,
});
const embedding = graph.node('LpNormalization', [sum], { axis: 1, p: 2 });
graph.output(embedding, ElementType.FLOAT, ['batch', width], 'sentence_embedding');
await writeModel(graph.build(), join(process.argv[2] ?? import.meta.dirname, 'model.onnx'));
