/** Common parts of tests of model files: expected errors, runs in ONNX Runtime, and random models. */
import fc from 'fast-check';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import {
  ElementType,
  GraphBuilder,
  OnnxError,
  serializeModel,
  type ModelProto,
  type OnnxErrorCode,
} from '../../src/onnx/index.ts';

/** The code and message of the OnnxError that `act` throws or rejects with; any other outcome fails the test. */
export async function refusal(act: () => unknown): Promise<[code: OnnxErrorCode, message: string]> {
  try {
    await act();
  } catch (error) {
    if (error instanceof OnnxError) return [error.code, error.message];
    throw error;
  }
  throw new Error('expected an OnnxError, but nothing was thrown');
}

export type Values = Readonly<Record<string, Tensor>>;

/** Runs a model unchanged, without the optimizations that change the last bits of a result. */
export async function runExactly(model: ModelProto, inputs: Values): Promise<Values> {
  const session = await InferenceSession.create(serializeModel(model), {
    graphOptimizationLevel: 'disabled',
    logSeverityLevel: 4,
    intraOpNumThreads: 1,
    interOpNumThreads: 1,
  });
  try {
    const feeds = Object.fromEntries(session.inputNames.map((name) => [name, inputs[name]!]));
    return await session.run(feeds);
  } finally {
    await session.release();
  }
}

const steps = [
  'add',
  'relu',
  'matmul',
  'weight',
  'alias',
  'split',
  'branch',
  'cast',
  'constant',
  'loop',
  'gather',
] as const;
type Step = { readonly step: (typeof steps)[number]; readonly left: number; readonly right: number };

/** The body of a branch or a loop that uses a value of the surrounding graph. */
function body(name: string, captured: string, weight: Float32Array) {
  const inner = new GraphBuilder(name, { captures: [captured] });
  return inner.scope(name, () => {
    const own = inner.weight('own', [3], weight);
    inner.output(inner.node('Mul', [captured, own]), ElementType.FLOAT, [2, 3], `${name}_y`);
    return inner.buildGraph();
  });
}

function loopBody(name: string, captured: string) {
  const inner = new GraphBuilder(name, { captures: [captured] });
  inner.input(`${name}_i`, ElementType.INT64, []);
  const condition = inner.input(`${name}_condition`, ElementType.BOOL, []);
  const state = inner.input(`${name}_state`, ElementType.FLOAT, [2, 3]);
  return inner.scope(name, () => {
    const half = inner.constant({ floats: 0.5 });
    const next = inner.node('Add', [inner.node('Mul', [state, half]), captured]);
    inner.output(condition, ElementType.BOOL, [], `${name}_go`);
    inner.output(next, ElementType.FLOAT, [2, 3], `${name}_next`);
    return inner.buildGraph();
  });
}

function build(given: readonly Step[]): ModelProto {
  const graph = new GraphBuilder('random');
  /** Values of [2, 3] floats so far. */
  const values = [graph.input('x0', ElementType.FLOAT, [2, 3]), graph.input('x1', ElementType.FLOAT, [2, 3])];
  const weights: string[] = [];
  const taken = new Set<string>();
  const pick = (index: number): string => {
    const value = values[index % values.length]!;
    taken.add(value);
    return value;
  };
  const weightOf = (index: number): string => {
    if (index % 3 !== 0 && weights.length > 0) return weights[index % weights.length]!;
    const data = Float32Array.from({ length: 9 }, (_, i) => Math.sin(i * 7 + index));
    const weight = graph.weight(`w${weights.length}`, [3, 3], data);
    weights.push(weight);
    return weight;
  };
  for (const [place, { step, left, right }] of given.entries()) {
    const a = pick(left);
    const b = pick(right);
    switch (step) {
      case 'add':
        values.push(graph.node('Add', [a, b]));
        break;
      case 'relu':
        values.push(graph.node('Relu', [a]));
        break;
      case 'matmul':
        values.push(graph.node('MatMul', [a, weightOf(right)]));
        break;
      case 'weight':
        values.push(graph.node('MatMul', [a, graph.node('Transpose', [weightOf(right)], { perm: [1, 0] })]));
        break;
      case 'alias':
        weights.push(graph.node('Identity', [weightOf(right)]));
        break;
      case 'split': {
        const parts = graph.node('Split', [a], { axis: 0 }, { outputs: 2 });
        values.push(graph.node('Concat', [parts[1], parts[0]], { axis: 0 }));
        break;
      }
      case 'branch': {
        const sum = graph.node('ReduceSum', [a], { keepdims: 0 });
        const condition = graph.node('Greater', [sum, graph.constant({ floats: 0 })]);
        values.push(
          graph.node('If', [condition], {
            then_branch: { graph: body(`then${place}`, b, Float32Array.of(1, 2, 3)) },
            else_branch: { graph: body(`else${place}`, a, Float32Array.of(-1, 0.5, 2)) },
          }),
        );
        break;
      }
      case 'loop': {
        const count = graph.constant({ ints: 1 + (right % 3) });
        values.push(graph.node('Loop', [count, '', a], { body: { graph: loopBody(`loop${place}`, b) } }));
        break;
      }
      case 'cast': {
        const whole = graph.node('Cast', [graph.node('Clip', [a, graph.constant({ floats: -9 }), ''])], {
          to: ElementType.INT64,
        });
        values.push(
          graph.node('Cast', [graph.node('Mod', [whole, graph.constant({ ints: 5 })])], { to: ElementType.FLOAT }),
        );
        break;
      }
      case 'constant':
        values.push(graph.node('Sub', [a, graph.constant({ floats: [right, 1, -2] })]));
        break;
      case 'gather': {
        const top = graph.node('TopK', [a, graph.constant({ ints: [3] })], { axis: 1 }, { outputs: 2 });
        values.push(graph.node('GatherElements', [b, top[1]], { axis: 1 }));
        break;
      }
    }
  }
  // Unused values are outputs of the graph, so that every node matters.
  const left = values.filter((value) => !taken.has(value));
  for (const value of left.length > 0 ? left : values.slice(-1)) graph.output(value, ElementType.FLOAT, [2, 3]);
  return graph.build();
}

/** Models of two inputs x0 and x1, [2, 3] floats each, with shared weights, aliases, branches, loops and constants. */
export const randomModels: fc.Arbitrary<ModelProto> = fc
  .array(fc.record({ step: fc.constantFrom(...steps), left: fc.nat(20), right: fc.nat(20) }), {
    minLength: 2,
    maxLength: 14,
  })
  .map(build);

/** Inputs of a random model. */
export const randomInputs = (): Values => ({
  x0: new Tensor('float32', Float32Array.of(1, -2, 3, 0.25, 5, -0.5), [2, 3]),
  x1: new Tensor('float32', Float32Array.of(-1, 2, 0.125, 4, -3, 1.5), [2, 3]),
});
