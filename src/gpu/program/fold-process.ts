/** The process of fold-client.ts: ONNX Runtime blocks the thread that calls it, so it runs here. */
import { readFileSync, writeFileSync } from 'node:fs';
import type * as OrtModule from 'onnxruntime-node';
import { serve } from '../../process/index.ts';
import { loadOnnxRuntime, NativeSession, packBytes, toOnnxRuntime, type NamedValue } from '../../tensor/index.ts';
import type { FoldedOutput, FoldRequest, InferredOutput, ReferenceRequest, RunRequest } from './fold-protocol.ts';

const ort = loadOnnxRuntime();

const base: OrtModule.InferenceSession.SessionOptions = {
  executionProviders: ['cpu'],
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  logSeverityLevel: 3,
};

async function optimize(modelPath: string, optimizedPath: string): Promise<readonly FoldedOutput[]> {
  const session = await ort.InferenceSession.create(modelPath, {
    ...base,
    graphOptimizationLevel: 'basic',
    optimizedModelFilePath: optimizedPath,
  });
  await session.release();
  return [];
}

async function inferTypes(modelPath: string): Promise<readonly InferredOutput[]> {
  const session = await ort.InferenceSession.create(modelPath, { ...base, graphOptimizationLevel: 'disabled' });
  const types = session.outputMetadata.flatMap((value) =>
    value.isTensor
      ? [
          {
            name: value.name,
            type: value.type,
            shape: value.shape.map((size) => (typeof size === 'number' ? size : null)),
          },
        ]
      : [],
  );
  await session.release();
  return types;
}

type Elements = Exclude<OrtModule.Tensor.DataType, string[]>;

const arrays = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
} as const;

/** Runs a model on zeros, for results that depend on weights alone, or for the results' shapes. */
function run({ modelPath, inputs, outputPath }: RunRequest): readonly FoldedOutput[] {
  const session = new NativeSession(modelPath, { ...base, graphOptimizationLevel: 'disabled' });
  const feeds = inputs.map(({ name, type, shape }) => {
    const kind = arrays[type as keyof typeof arrays];
    if (kind === undefined) throw new Error(`the input '${name}' has the type ${type}, which cannot be made`);
    const values = new kind(shape.reduce((product, size) => product * size, 1));
    return { name, value: new ort.Tensor(type as OrtModule.Tensor.Type, values as Elements, shape) };
  });
  const fetches = session.outputNames.map((name) => ({ name, value: null }));
  const outputs = keep(session.run(feeds, fetches), outputPath);
  session.release();
  return outputs;
}

/** Writes the results to a file, one after the other; a text as its length and its bytes. */
function keep(results: readonly NamedValue<OrtModule.Tensor>[], outputPath: string | undefined): FoldedOutput[] {
  const outputs: FoldedOutput[] = [];
  const parts: Uint8Array[] = [];
  for (const { name, value } of results) {
    const data = value.type === 'string' ? packBytes(value.data as string[]) : bytesOf(value.data as NumericData);
    outputs.push({ name, type: value.type, shape: value.dims, bytes: data.byteLength });
    parts.push(data);
  }
  if (outputPath !== undefined) writeFileSync(outputPath, Buffer.concat(parts));
  return outputs;
}

type NumericData = Exclude<OrtModule.Tensor['data'], string[]>;
const bytesOf = ({ buffer, byteOffset, byteLength }: NumericData): Uint8Array =>
  new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);

/** Runs a model on given inputs, with ONNX Runtime's default optimisations, as the CPU pools do. */
function reference({ modelPath, inputPath, inputs, outputPath }: ReferenceRequest): FoldedOutput[] {
  const session = new NativeSession(modelPath, base);
  const all = new Uint8Array(readFileSync(inputPath));
  let at = 0;
  const feeds = inputs.map(({ bytes, ...input }) => ({
    name: input.name,
    // `slice` copies, so that the elements are aligned.
    value: toOnnxRuntime({ ...input, data: all.slice(at, (at += bytes)) }),
  }));
  const fetches = session.outputNames.map((name) => ({ name, value: null }));
  const outputs = keep(session.run(feeds, fetches), outputPath);
  session.release();
  return outputs;
}

async function answer(request: FoldRequest): Promise<readonly FoldedOutput[] | readonly InferredOutput[]> {
  switch (request.op) {
    case 'optimize':
      return await optimize(request.modelPath, request.optimizedPath);
    case 'types':
      return await inferTypes(request.modelPath);
    case 'run':
      return run(request);
    case 'reference':
      return reference(request);
  }
}

serve(async (request: FoldRequest) => ({ answer: await answer(request) }), { inOrder: true });
