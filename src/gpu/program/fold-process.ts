/** The process of fold-client.ts: ONNX Runtime blocks the thread that calls it, so it runs here. */
import type * as OrtModule from 'onnxruntime-node';
import { isMended, openServed } from '../../onnx/index.ts';
import { serve, WithTensors } from '../../process/index.ts';
import { byteCount, dataTypeOfOnnxRuntime, loadOnnxRuntime, NativeSession, type Tensor } from '../../tensor/index.ts';
import type { FoldApi, InferredOutput, TensorHead } from './fold-client.ts';

const ort = loadOnnxRuntime();

const base: OrtModule.InferenceSession.SessionOptions = {
  executionProviders: ['cpu'],
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  logSeverityLevel: 3,
};

function optimize(modelPath: string, optimizedModelFilePath: string): void {
  new NativeSession(modelPath, { ...base, graphOptimizationLevel: 'basic', optimizedModelFilePath }).release();
}

async function inferTypes(modelPath: string): Promise<readonly InferredOutput[]> {
  const session = await ort.InferenceSession.create(modelPath, { ...base, graphOptimizationLevel: 'disabled' });
  const types = session.outputMetadata.flatMap((value) => {
    const datatype = value.isTensor ? dataTypeOfOnnxRuntime(value.type) : undefined;
    if (!value.isTensor || datatype === undefined) return [];
    const shape = value.shape.map((size) => (typeof size === 'number' ? size : null));
    return [{ name: value.name, datatype, shape }];
  });
  await session.release();
  return types;
}

/** @param asPools see {@link FoldApi} */
function run(modelPath: string, inputs: readonly Tensor[], asPools: boolean): Tensor[] {
  const session = asPools
    ? openServed(modelPath, base, { isMended: isMended(modelPath), bfloat16Outputs: [] })
    : new NativeSession(modelPath, { ...base, graphOptimizationLevel: 'disabled' });
  const outputs = session.runTensors(inputs);
  session.release();
  return outputs;
}

const zeros = (head: TensorHead): Tensor => ({
  ...head,
  data: new Uint8Array(byteCount(head.datatype, head.shape) ?? 0),
});

serve<FoldApi>({
  types: ({ modelPath }) => inferTypes(modelPath),
  optimize: ({ modelPath, optimizedPath }) => optimize(modelPath, optimizedPath),
  shapes: ({ modelPath, inputs }) =>
    run(modelPath, inputs.map(zeros), false).map(({ name, datatype, shape }) => ({ name, datatype, shape })),
  run: ({ modelPath, asPools }, { tensors }) => new WithTensors(null, run(modelPath, tensors, asPools)),
});
