/**
 * The process that folds graphs: ONNX Runtime blocks the thread that calls it, so it works here. It serves one request
 * after the other over the channel to its parent, and ends with it. Runs compiled, never from source.
 */
import { writeFileSync } from 'node:fs';
import type * as OrtModule from 'onnxruntime-node';
import { loadOnnxRuntime } from '../../tensor/index.ts';
import type { FoldReply, FoldRequest, RunRequest } from './fold-protocol.ts';

const ort = loadOnnxRuntime();

const base: OrtModule.InferenceSession.SessionOptions = {
  executionProviders: ['cpu'],
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  logSeverityLevel: 3,
};

async function optimize(modelPath: string, optimizedPath: string): Promise<FoldReply> {
  const session = await ort.InferenceSession.create(modelPath, {
    ...base,
    graphOptimizationLevel: 'basic',
    optimizedModelFilePath: optimizedPath,
  });
  await session.release();
  return { ok: true, outputs: [] };
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

/** Runs a model on zeros: for results that follow from its weights alone, or for their shapes. */
async function run({ modelPath, inputs, outputPath }: RunRequest): Promise<FoldReply> {
  const session = await ort.InferenceSession.create(modelPath, { ...base, graphOptimizationLevel: 'disabled' });
  const feeds: Record<string, OrtModule.Tensor> = {};
  for (const { name, type, shape } of inputs) {
    const kind = arrays[type as keyof typeof arrays];
    if (kind === undefined) throw new Error(`the input '${name}' has the type ${type}, which cannot be made`);
    const values = new kind(shape.reduce((product, size) => product * size, 1));
    feeds[name] = new ort.Tensor(type as OrtModule.Tensor.Type, values as Elements, shape);
  }
  const results = await session.run(feeds);
  const outputs: { name: string; type: string; shape: readonly number[]; bytes: number }[] = [];
  const parts: Uint8Array[] = [];
  for (const name of session.outputNames) {
    const value = results[name];
    if (value === undefined) continue;
    if (value.type === 'string') throw new Error(`the value '${name}' holds strings`);
    const { buffer, byteOffset, byteLength } = value.data as Exclude<typeof value.data, string[]>;
    outputs.push({ name, type: value.type, shape: value.dims, bytes: byteLength });
    parts.push(new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength));
  }
  if (outputPath !== undefined) writeFileSync(outputPath, Buffer.concat(parts));
  await session.release();
  return { ok: true, outputs };
}

async function serve(request: FoldRequest): Promise<FoldReply> {
  try {
    return request.op === 'optimize' ? await optimize(request.modelPath, request.optimizedPath) : await run(request);
  } catch (error) {
    return { ok: false, message: error instanceof Error ? error.message : String(error) };
  }
}

interface Numbered {
  readonly id: number;
  readonly request: FoldRequest;
}

const waiting: Numbered[] = [];
let busy = false;

async function serveAll(): Promise<void> {
  busy = true;
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    process.send?.({ id: next.id, reply: await serve(next.request) });
  }
  busy = false;
}

process.on('message', (message) => {
  waiting.push(message as Numbered);
  if (!busy) void serveAll();
});
process.on('disconnect', () => process.exit(0));
