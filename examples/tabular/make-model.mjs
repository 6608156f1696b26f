// Writes model.onnx: scaling and logistic regression, as a fitted pipeline is exported.
import { join } from 'node:path';
// In a project of its own: 'turntable/onnx'. `turntable init` says where the model goes.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const floats = (...values) => Float32Array.from(values);
const graph = new GraphBuilder('churn');
// months, monthlyFee, calls, and the three contracts
const row = graph.input('row', ElementType.FLOAT, ['batch', 6]);
const centred = graph.node('Sub', [row, graph.weight('mean', [6], floats(30, 60, 1, 0, 0, 0))]);
const scaled = graph.node('Div', [centred, graph.weight('deviation', [6], floats(24, 30, 2, 1, 1, 1))]);
const weights = graph.weight('weights', [6, 1], floats(-1.2, 0.5, 0.6, 0.4, -0.6, -1.5));
const score = graph.node('Gemm', [scaled, weights, graph.weight('bias', [1], floats(-0.5))]);
graph.output(graph.node('Sigmoid', [score]), ElementType.FLOAT, ['batch', 1], 'probability');
await writeModel(graph.build(), join(process.argv[2] ?? import.meta.dirname, 'model.onnx'));
