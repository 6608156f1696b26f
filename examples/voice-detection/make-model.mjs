// Writes model.onnx: how loud the sound was of late, with the inputs and outputs of Silero VAD v5.
import { join } from 'node:path';
// In a project of its own: 'turntable/onnx'. `turntable init` says where the model goes.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const graph = new GraphBuilder('loudness');
const input = graph.input('input', ElementType.FLOAT, ['batch', 'samples']);
const state = graph.input('state', ElementType.FLOAT, [2, 'batch', 128]);
graph.input('sr', ElementType.INT64, []);
const number = (value) => graph.constant({ floats: value });
// Half of it is the new window's, half of it what was before.
const power = graph.node('ReduceMean', [graph.node('Mul', [input, input])], { axes: [1], keepdims: 1 });
const loud = graph.node('Unsqueeze', [graph.node('Sqrt', [power]), graph.constant({ ints: [0] })]);
const half = number(0.5);
const next = graph.node('Add', [graph.node('Mul', [state, half]), graph.node('Mul', [loud, half])]);
const mean = graph.node('ReduceMean', [next], { axes: [0, 2], keepdims: 0 });
const score = graph.node('Mul', [graph.node('Sub', [mean, number(0.05)]), number(40)]);
const speech = graph.node('Unsqueeze', [graph.node('Sigmoid', [score]), graph.constant({ ints: [1] })]);
graph.output(speech, ElementType.FLOAT, ['batch', 1], 'output');
graph.output(next, ElementType.FLOAT, [2, 'batch', 128], 'stateN');
await writeModel(graph.build(), join(process.argv[2] ?? import.meta.dirname, 'model.onnx'));
