/** Models made of local functions: y = f(x), for x and y of FP32 [2]. */
import { ElementType, GraphBuilder, nodeProto, type ModelProto } from '../../src/onnx/index.ts';

/** One list per function: the numbers of the functions that it calls, one after the other; none: it is Identity. */
export type CallLists = readonly (readonly number[])[];

const domain = 'local';
const functionName = (number: number): string => `f${number}`;

/** The model calls the last function. */
export function modelOfFunctions(calls: CallLists): ModelProto {
  const graph = new GraphBuilder('calls');
  const x = graph.input('x', ElementType.FLOAT, [2]);
  graph.output(graph.node('Identity', [x]), ElementType.FLOAT, [2], 'y');
  const model = graph.build();
  const opsetImport = [
    { domain: '', version: 17n },
    { domain, version: 1n },
  ];
  const functions = calls.map((called, number) => {
    const value = (at: number): string => (at === 0 ? 'a' : at === called.length ? 'z' : `v${at}`);
    const node = called.map((each, at) =>
      nodeProto(functionName(each), [value(at)], [value(at + 1)], {}, { name: '', domain }),
    );
    return {
      name: functionName(number),
      domain,
      input: ['a'],
      output: ['z'],
      attribute: [],
      node: called.length === 0 ? [nodeProto('Identity', ['a'], ['z'])] : node,
      opsetImport,
    };
  });
  const node = [nodeProto(functionName(calls.length - 1), ['x'], ['y'], {}, { name: 'call', domain })];
  return { ...model, irVersion: 8n, opsetImport, functions, graph: { ...model.graph, node } };
}

/** f0 is Identity, and each further function calls the one before it so often. */
export const towerOf = (levels: number, callsEach: number): CallLists => [
  [],
  ...Array.from({ length: levels }, (_, below) => Array.from({ length: callsEach }, () => below)),
];
