/** Opens the form of a model that is served with ONNX Runtime. */
import { dirname } from 'node:path';
import { NativeSession, packBytes, type SessionOptions, type Tensor } from '../tensor/index.ts';
import { dataTypeOf } from './element-type.ts';
import { readModelNow } from './read.ts';
import { servedModel } from './served.ts';
import { tensorBytes } from './tensor-data.ts';
import type { TensorProto } from './types.ts';
import { serializeModel } from './write.ts';

/** What ONNX Runtime opens: a model's file, or the bytes of its served form. */
interface SessionSource {
  readonly model: string | Uint8Array;
  readonly options: SessionOptions;
}

/**
 * A model's served form as ONNX Runtime takes it. External data stays in its files.
 * @throws OnnxError as `readModel`
 */
function servedSource(modelPath: string, options: SessionOptions, given?: ReadonlySet<string>): SessionSource {
  const { model } = servedModel(readModelNow(modelPath), given);
  const folder = { model_external_initializers_file_folder_path: dirname(modelPath) };
  const { session, ...extra } = (options.extra ?? {}) as { readonly session?: object };
  return {
    model: serializeModel(model, 'keep'),
    options: { ...options, extra: { ...extra, session: { ...session, ...folder } } },
  };
}

/** Whether a model needs another form than its file's. @throws OnnxError as `readModel` */
export const isMended = (modelPath: string): boolean => servedModel(readModelNow(modelPath)).isMended;

/** How a model is opened whose file ONNX Runtime's binding does not take as it is; part of its metadata. */
export interface ModelOpening {
  /** Instances open the served form and not the file. */
  readonly isMended: boolean;
  /** Outputs that are BF16 in the file, and FP32 in the served form. */
  readonly bfloat16Outputs: readonly string[];
  /** Inputs with an initializer, which counts when a call leaves them out. */
  readonly optionalInputs: readonly string[];
}

/** @throws OnnxError as `readModel`; Error with ONNX Runtime's message */
export function openServed(
  modelPath: string,
  options: SessionOptions,
  opening: Pick<ModelOpening, 'isMended' | 'bfloat16Outputs'> | undefined,
): NativeSession {
  const source = opening?.isMended === true ? servedSource(modelPath, options) : { model: modelPath, options };
  return new NativeSession(source.model, source.options, opening?.bfloat16Outputs);
}

/**
 * Opens a model so that its optional inputs must be given: ONNX Runtime's binding gives none that has an initializer, so
 * they lose it here. {@link defaultsOf} has the values for calls that leave them out.
 * @throws as {@link openServed}
 */
export function openOverridable(modelPath: string, options: SessionOptions, opening: ModelOpening): NativeSession {
  const source = servedSource(modelPath, options, new Set(opening.optionalInputs));
  return new NativeSession(source.model, source.options, opening.bfloat16Outputs);
}

/** The initializers of a model's optional inputs. @throws OnnxError as `readModel` */
export function defaultsOf(modelPath: string, { optionalInputs: names }: ModelOpening): Tensor[] {
  const { initializer } = readModelNow(modelPath).graph;
  // The last one of a name counts.
  const tensors = new Map(initializer.map((tensor) => [tensor.name, tensor]));
  return names.map((name) => defaultOf(tensors.get(name)!, dirname(modelPath)));
}

function defaultOf(tensor: TensorProto, folder: string): Tensor {
  const { name, dims, dataType, stringData = [] } = tensor;
  const datatype = dataTypeOf(dataType)!;
  const data = datatype === 'BYTES' ? packBytes(stringData) : tensorBytes(tensor, folder);
  return { name, datatype, shape: dims.map(Number), data };
}
