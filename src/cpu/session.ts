/** One ONNX Runtime session on the CPU, speaking the project's tensors. Runs inside an instance's process only. */
import type * as OrtModule from 'onnxruntime-node';
import type { arrayOf } from '../tensor/index.ts';
import type { SessionSettings } from './protocol.ts';
import {
  bytesElements,
  dataTypeOfOnnxRuntime,
  elements,
  loadOnnxRuntime,
  onnxRuntimeType,
  packBytes,
  TensorError,
  type DataType,
  type Tensor,
} from '../tensor/index.ts';

const ort = loadOnnxRuntime();

export class Session {
  readonly #session: OrtModule.InferenceSession;

  private constructor(session: OrtModule.InferenceSession) {
    this.#session = session;
  }

  /** Loads a model; rejects with ONNX Runtime's own words. */
  static async load(modelPath: string, settings: SessionSettings): Promise<Session> {
    return new Session(await ort.InferenceSession.create(modelPath, ortOptions(settings)));
  }

  /** Loads what {@link writePrepared} has written. */
  static async loadPrepared(preparedPath: string, settings: SessionSettings): Promise<Session> {
    // All that can be optimized has been; looking again would only cost time.
    const options = { ...ortOptions(settings), graphOptimizationLevel: 'disabled' as const };
    return new Session(await ort.InferenceSession.create(preparedPath, options));
  }

  get inputNames(): readonly string[] {
    return this.#session.inputNames;
  }

  /** Runs the model once. The native call blocks this thread until it is done. */
  async run(inputs: readonly Tensor[], outputs: readonly string[] | undefined): Promise<Tensor[]> {
    const feeds: Record<string, OrtModule.Tensor> = {};
    for (const input of inputs) feeds[input.name] = toOrt(input);
    const results = await (outputs === undefined ? this.#session.run(feeds) : this.#session.run(feeds, outputs));
    return Object.entries(results).map(([name, value]) => fromOrt(name, value));
  }
}

function ortOptions({ threads, cores = [], spinning }: SessionSettings): OrtModule.InferenceSession.SessionOptions {
  // ONNX Runtime counts processors from 1. The calling thread is not its own to pin: that comes from outside.
  const others = cores.slice(1, threads).map((core) => core + 1);
  return {
    executionProviders: ['cpu'],
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    logSeverityLevel: 3,
    extra: {
      session: {
        // On shared cores a spinning thread pool takes them from whoever has work: two sessions of two threads on two
        // cores run half as fast with it.
        intra_op: { allow_spinning: spinning ? '1' : '0' },
        ...(others.length === 0 ? undefined : { intra_op_thread_affinities: others.join(';') }),
      },
    },
  };
}

/** Constants smaller than this stay in the model itself. */
const sharedBytesMin = 1024;

/**
 * Writes the optimized graph of a model to `preparedPath`, and beside it under `weightsFile` its weights in the form in
 * which this processor's kernels want them: a session that loads them maps that file instead of making a copy of its own.
 * Rejects with ONNX Runtime's words.
 */
export async function writePrepared(modelPath: string, preparedPath: string, weightsFile: string): Promise<void> {
  const options = ortOptions({ threads: 1, spinning: false });
  const session = await ort.InferenceSession.create(modelPath, {
    ...options,
    optimizedModelFilePath: preparedPath,
    extra: {
      session: {
        intra_op: { allow_spinning: '0' },
        save_external_prepacked_constant_initializers: '1',
        optimized_model_external_initializers_file_name: weightsFile,
        optimized_model_external_initializers_min_size_in_bytes: String(sharedBytesMin),
      },
    },
  });
  await session.release();
}

function toOrt(tensor: Tensor): OrtModule.Tensor {
  const type = onnxRuntimeType(tensor.datatype);
  if (type === undefined)
    throw new TensorError(`tensor '${tensor.name}' is ${tensor.datatype}, which CPU instances cannot run`);
  if (tensor.datatype === 'BYTES') {
    const strings = Array.from(bytesElements(tensor), (element) => Buffer.from(element).toString('utf8'));
    return new ort.Tensor('string', strings, tensor.shape);
  }
  return new ort.Tensor(type, elements(tensor) as OrtModule.Tensor.DataType, tensor.shape);
}

function fromOrt(name: string, value: OrtModule.Tensor): Tensor {
  const datatype = dataTypeOfOnnxRuntime(value.type);
  if (datatype === undefined)
    throw new TensorError(`output '${name}' has the type ${value.type}, which has no datatype`);
  if (datatype === 'BYTES') {
    return { name, datatype, shape: value.dims, data: packBytes(value.data as string[]) };
  }
  const data = value.data as InstanceType<(typeof arrayOf)[Exclude<DataType, 'BYTES'>]>;
  return { name, datatype, shape: value.dims, data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) };
}
