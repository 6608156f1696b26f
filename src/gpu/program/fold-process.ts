/** The process of fold-client.ts: ONNX Runtime blocks the thread that calls it, so it runs here. */
import { readFileSync, writeFileSync } from 'node:fs';
import type * as OrtModule from 'onnxruntime-node';
import { isMended, openServed } from '../../onnx/index.ts';
import { serve } from '../../process/index.ts';
import {
  dataTypeOfOnnxRuntime,
  fromOnnxRuntime,
  loadOnnxRuntime,
  NativeSession,
  toOnnxRuntime,
} from '../../tensor/index.ts';
import type { FoldRequest, InferredOutput, RunRequest, TensorHead } from './fold-protocol.ts';

const ort = loadOnnxRuntime();

const base: OrtModule.InferenceSession.SessionOptions = {
  executionProviders: ['cpu'],
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  logSeverityLevel: 3,
};

async function optimize(modelPath: string, optimizedPath: string): Promise<undefined> {
  const session = await ort.InferenceSession.create(modelPath, {
    ...base,
    graphOptimizationLevel: 'basic',
    optimizedModelFilePath: optimizedPath,
  });
  await session.release();
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

function run({ modelPath, inputs, inputPath, outputPath, asPools }: RunRequest): readonly TensorHead[] {
  const session = asPools
    ? openServed(modelPath, base, { isMended: isMended(modelPath), bfloat16Outputs: [] })
    : new NativeSession(modelPath, { ...base, graphOptimizationLevel: 'disabled' });
  const given = inputPath === undefined ? undefined : new Uint8Array(readFileSync(inputPath));
  let at = 0;
  const feeds = inputs.map(({ bytes, ...input }) => ({
    name: input.name,
    // `slice` copies, so that the elements are aligned.
    value: toOnnxRuntime({ ...input, data: given?.slice(at, (at += bytes)) ?? new Uint8Array(bytes) }),
  }));
  const fetches = session.outputNames.map((name) => ({ name, value: null }));
  const outputs = session.run(feeds, fetches).map((value) => fromOnnxRuntime(value));
  if (outputPath !== undefined) writeFileSync(outputPath, Buffer.concat(outputs.map(({ data }) => data)));
  session.release();
  return outputs.map(({ name, datatype, shape, data }) => ({ name, datatype, shape, bytes: data.byteLength }));
}

async function answer(request: FoldRequest): Promise<readonly TensorHead[] | readonly InferredOutput[] | undefined> {
  switch (request.op) {
    case 'optimize':
      return await optimize(request.modelPath, request.optimizedPath);
    case 'types':
      return await inferTypes(request.modelPath);
    case 'run':
      return run(request);
  }
}

serve(async (request: FoldRequest) => ({ answer: await answer(request) }), { inOrder: true });
