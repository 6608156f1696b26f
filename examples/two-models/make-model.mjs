// Writes model.onnx: what a contract is worth in a year, (1 - leaving) * fee.
import { join } from 'node:path';
// In a project of its own: 'turntable/onnx'. `turntable init` says where the model goes.
import { ElementType, GraphBuilder, writeModel } from '../../dist/onnx/index.js';

const graph = new GraphBuilder('worth');
const leaving = graph.input('leaving', ElementType.FLOAT, ['offers', 1]);
const fee = graph.input('fee', ElementType.FLOAT, ['offers', 1]);
const staying = graph.node('Sub', [graph.weight('one', [1], Float32Array.of(1)), leaving]);
graph.output(graph.node('Mul', [staying, fee]), ElementType.FLOAT, ['offers', 1], 'worth');
await writeModel(graph.build(), join(process.argv[2] ?? import.meta.dirname, 'model.onnx'));
