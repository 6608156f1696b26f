/** ONNX Runtime's results: all cases of one operator set are one model and one run. */
import type { Tensor as OrtTensor } from 'onnxruntime-node';
import { ElementType, elementTypeOf, GraphBuilder, serializeModel, type ModelProto } from '../../../src/onnx/index.ts';
import {
  elements,
  loadOnnxRuntime,
  type DataType,
  type Tensor,
  bf16ToNumber,
  fp16ToNumber,
} from '../../../src/tensor/index.ts';
import { describeCase, operatorName, tensor, type Case } from '../../support/operator-cases/case.ts';

const ort = loadOnnxRuntime();

const ortTypes: Partial<Record<DataType, OrtTensor.Type>> = {
  BOOL: 'bool',
  UINT8: 'uint8',
  INT8: 'int8',
  UINT16: 'uint16',
  INT16: 'int16',
  UINT32: 'uint32',
  INT32: 'int32',
  UINT64: 'uint64',
  INT64: 'int64',
  FP32: 'float32',
  FP64: 'float64',
};

const is16Bit = (datatype: DataType | undefined): boolean => datatype === 'FP16' || datatype === 'BF16';

/** ONNX Runtime has few 16-bit operators on the CPU, so it gets the same values in 32 bits. */
const widened = (datatype: DataType): DataType => (is16Bit(datatype) ? 'FP32' : datatype);

/** The elements as numbers; 64-bit integers of tests are small. */
export function numbersIn(of: Omit<Tensor, 'name'>): number[] {
  const values = Array.from(elements({ name: '', ...of }) as Iterable<number | bigint>, Number);
  if (of.datatype === 'FP16') return values.map(fp16ToNumber);
  if (of.datatype === 'BF16') return values.map(bf16ToNumber);
  return values;
}

function widen(of: Omit<Tensor, 'name'>): Omit<Tensor, 'name'> {
  return is16Bit(of.datatype) ? tensor('FP32', of.shape, numbersIn(of)) : of;
}

interface Planned {
  readonly one: Case;
  /** Names of the model's outputs for the case's outputs. */
  readonly outputs: readonly (string | undefined)[];
}

function addCase(graph: GraphBuilder, one: Case, index: number, feeds: Record<string, OrtTensor>): Planned {
  const names = one.inputs.map((input, place) => {
    if (input === undefined) return '';
    const name = `case${index}_input${place}`;
    const { datatype, shape, data } = widen(input.tensor);
    if (input.constant) return graph.initializer({ name, datatype, shape, data });
    graph.input(name, elementTypeOf(datatype), shape);
    feeds[name] = new ort.Tensor(ortTypes[datatype]!, elements({ name, datatype, shape, data }) as never, [...shape]);
    return name;
  });
  const { domain, name } = operatorName(one.operator);
  // ONNX Runtime crashes on a Split with an omitted output, so all outputs have names here.
  const wanted = one.outputs.map((datatype, place) =>
    datatype === undefined && domain !== '' ? '' : `case${index}_output${place}`,
  );
  const made =
    one.reference?.(graph, names) ??
    graph.node(name, names, one.attributes, { domain, name: `case${index}`, outputs: wanted });
  const outputs = one.outputs.map((datatype, place) => {
    if (datatype === undefined) return undefined;
    return graph.output(made[place]!, elementTypeOf(widened(datatype)), [], `result${index}_${place}`);
  });
  return { one, outputs };
}

/** Removes the outputs' shapes, which the run finds out. */
function withoutShapes(model: ModelProto, opset: number): ModelProto {
  return {
    ...model,
    // Operator sets above 17 came with later versions of the file format.
    irVersion: opset > 18 ? 10n : 8n,
    graph: {
      ...model.graph,
      output: model.graph.output.map((output) => ({
        ...output,
        type: { tensorType: { elemType: output.type?.tensorType?.elemType ?? ElementType.FLOAT } },
      })),
    },
  };
}

async function runTogether(cases: readonly Case[], opset: number): Promise<Tensor[][]> {
  const graph = new GraphBuilder('conformance', { opset });
  const feeds: Record<string, OrtTensor> = {};
  const planned = cases.map((one, index) => {
    try {
      return addCase(graph, one, index, feeds);
    } catch (error) {
      throw new Error(`${describeCase(one)}: ${(error as Error).message}`, { cause: error });
    }
  });
  const session = await ort.InferenceSession.create(serializeModel(withoutShapes(graph.build(), opset)), {
    graphOptimizationLevel: 'disabled',
    logSeverityLevel: 4,
    intraOpNumThreads: 1,
    interOpNumThreads: 1,
  });
  try {
    const results = await session.run(feeds);
    return planned.map(({ one, outputs }) =>
      outputs.flatMap((name, place): Tensor[] => {
        const datatype = one.outputs[place];
        if (name === undefined || datatype === undefined) return [];
        const { dims, data } = results[name]!;
        return [{ name, ...tensor(datatype, dims, Array.from(data as Iterable<number | bigint>, Number)) }];
      }),
    );
  } finally {
    await session.release();
  }
}

/**
 * The used outputs of each case. If ONNX Runtime refuses the model, the cases run one by one, so that the error names
 * the case.
 */
export async function referenceResults(cases: readonly Case[]): Promise<Map<Case, Tensor[]>> {
  const results = new Map<Case, Tensor[]>();
  for (const opset of new Set(cases.map((one) => one.opset))) {
    const group = cases.filter((one) => one.opset === opset);
    let outputs: Tensor[][] = [];
    try {
      outputs = await runTogether(group, opset);
    } catch {
      for (const one of group) {
        try {
          outputs.push(...(await runTogether([one], opset)));
        } catch (error) {
          throw new Error(`ONNX Runtime refuses ${describeCase(one)}: ${(error as Error).message}`, { cause: error });
        }
      }
    }
    for (const [index, one] of group.entries()) results.set(one, outputs[index]!);
  }
  return results;
}
