/** Cases as models of one node, and ONNX Runtime's answers. */
import type * as OrtModule from 'onnxruntime-node';
import { elementTypeOf, GraphBuilder, serializeModel, type ModelProto } from '../../../src/onnx/index.ts';
import {
  dataTypeOfOnnxRuntime,
  elements,
  loadOnnxRuntime,
  onnxRuntimeType,
  type ArrayOf,
  type Tensor,
} from '../../../src/tensor/index.ts';
import { operatorName, type Case } from './case.ts';

const ort = loadOnnxRuntime();

export interface CaseModel {
  readonly model: ModelProto;
  readonly inputs: readonly Tensor[];
}

/** Outputs have no declared type: the reader of the model infers it. */
export function modelOf(one: Case): CaseModel {
  const graph = new GraphBuilder('case', { opset: one.opset });
  const inputs: Tensor[] = [];
  const names = one.inputs.map((input, place) => {
    if (input === undefined) return '';
    const tensor = { ...input.tensor, name: `x${place}` };
    if (input.constant) return graph.initializer(tensor);
    inputs.push(tensor);
    return graph.input(tensor.name, elementTypeOf(tensor.datatype), tensor.shape);
  });
  const { domain, name } = operatorName(one.operator);
  const wanted = one.outputs.map((taken, place) => (taken === undefined ? '' : `y${place}`));
  const made = graph.node(name, names, one.attributes, { domain, outputs: wanted });
  for (const value of made) if (value !== '') graph.output(value, 1, []);
  const model = graph.build();
  return {
    // Operator sets above 17 came with later versions of the file format.
    model: {
      ...model,
      irVersion: one.opset > 20 ? 10n : 8n,
      graph: { ...model.graph, output: model.graph.output.map(({ name: output }) => ({ name: output })) },
    },
    inputs,
  };
}

/** Cases of one operator set as one model: inputs and outputs of each are prefixed with its number. */
export function togetherOf(models: readonly CaseModel[]): CaseModel {
  const [first] = models;
  if (first === undefined) throw new Error('a model needs a case');
  const renamed = models.map(({ model, inputs }, index) => {
    const nameOf = (name: string): string => (name === '' ? '' : `c${index}.${name}`);
    const { graph } = model;
    return {
      inputs: inputs.map((input): Tensor => Object.assign({}, input, { name: nameOf(input.name) })),
      node: graph.node.map((node) =>
        Object.assign({}, node, {
          name: nameOf(node.name),
          input: node.input.map(nameOf),
          output: node.output.map(nameOf),
        }),
      ),
      initializer: graph.initializer.map((tensor) => Object.assign({}, tensor, { name: nameOf(tensor.name) })),
      input: graph.input.map((info) => Object.assign({}, info, { name: nameOf(info.name) })),
      output: graph.output.map((info) => Object.assign({}, info, { name: nameOf(info.name) })),
    };
  });
  const domains = new Map(models.flatMap(({ model }) => model.opsetImport.map((each) => [each.domain, each] as const)));
  return {
    inputs: renamed.flatMap(({ inputs }) => inputs),
    model: {
      ...first.model,
      opsetImport: [...domains.values()],
      graph: {
        ...first.model.graph,
        node: renamed.flatMap(({ node }) => node),
        initializer: renamed.flatMap(({ initializer }) => initializer),
        input: renamed.flatMap(({ input }) => input),
        output: renamed.flatMap(({ output }) => output),
      },
    },
  };
}

/** Undefined if ONNX Runtime does not open or run it. */
export async function referenceOf({ model, inputs }: CaseModel): Promise<Tensor[] | undefined> {
  let session: OrtModule.InferenceSession;
  try {
    session = await ort.InferenceSession.create(serializeModel(model), {
      graphOptimizationLevel: 'disabled',
      logSeverityLevel: 4,
      intraOpNumThreads: 1,
      interOpNumThreads: 1,
    });
  } catch {
    return undefined;
  }
  try {
    const feeds: Record<string, OrtModule.Tensor> = {};
    for (const input of inputs) {
      const values = elements(input) as OrtModule.Tensor.DataType;
      feeds[input.name] = new ort.Tensor(onnxRuntimeType(input.datatype)!, values, [...input.shape]);
    }
    const results = await session.run(feeds);
    return session.outputNames.map((name): Tensor => {
      const { type, dims, data } = results[name]!;
      const { buffer, byteOffset, byteLength } = data as ArrayOf<'FP32'>;
      return {
        name,
        datatype: dataTypeOfOnnxRuntime(type)!,
        shape: dims,
        data: new Uint8Array(buffer, byteOffset, byteLength).slice(),
      };
    });
  } catch {
    return undefined;
  } finally {
    await session.release();
  }
}
