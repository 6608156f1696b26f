/**
 * ONNX Runtime, with the same behaviour on every Node version: the project's tensors as its own, and its sessions run on
 * lists of tensors, where names are data and never keys.
 */
import { isUtf8 } from 'node:buffer';
import { createRequire } from 'node:module';
import type * as OrtModule from 'onnxruntime-node';
import type * as BindingModule from 'onnxruntime-node/dist/binding.js';
import { TensorError } from './error.ts';
import { OnnxRuntimeError } from './onnx-runtime-reason.ts';
import { bf16ToSingles, singlesToBf16 } from './half.ts';
import { bytesElements, elements, packBytes, type NamedValue, type Tensor, type DataType } from './tensor.ts';

export type SessionOptions = OrtModule.InferenceSession.SessionOptions;

/**
 * Loads ONNX Runtime's binding: some 50 ms the first time in a process.
 *
 * Half-precision tensors hold their bits as a Uint16Array on every version of Node. By default the binding would use
 * Float16Array if the language has it (Node 24): its JavaScript half then converts the given bits to numbers, and its
 * native half (1.30) reads such an array as empty. The binding looks for the type once, when its first tensor is made.
 */
export function loadOnnxRuntime(): typeof OrtModule {
  return (loaded ??= load());
}

let loaded: typeof OrtModule | undefined;
const require = createRequire(import.meta.url);

/** The native binding that {@link loadOnnxRuntime} calls. */
function loadBinding(): typeof BindingModule {
  loadOnnxRuntime();
  return require('onnxruntime-node/dist/binding.js') as typeof BindingModule;
}

function load(): typeof OrtModule {
  // Stops ONNX Runtime from reporting its use. Processes started by src/process/child.ts have this set already.
  process.env['ORT_DISABLE_TELEMETRY'] ??= '1';
  // Through require: the package is CommonJS, and this way loading it is one synchronous step that can be timed.
  const ort = require('onnxruntime-node') as typeof OrtModule;
  const float16Array = Object.getOwnPropertyDescriptor(globalThis, 'Float16Array');
  if (float16Array === undefined) return ort;
  Reflect.deleteProperty(globalThis, 'Float16Array');
  try {
    void new ort.Tensor('uint8', new Uint8Array(1), [1]);
  } finally {
    Object.defineProperty(globalThis, 'Float16Array', float16Array);
  }
  return ort;
}

/** The version of the installed package, which is not loaded. */
export function onnxRuntimeVersion(): string {
  return (require('onnxruntime-node/package.json') as { readonly version: string }).version;
}

/** ONNX Runtime's JavaScript names of element types; its binding has no others. */
const onnxRuntimeTypes = {
  BOOL: 'bool',
  UINT8: 'uint8',
  UINT16: 'uint16',
  UINT32: 'uint32',
  UINT64: 'uint64',
  INT8: 'int8',
  INT16: 'int16',
  INT32: 'int32',
  INT64: 'int64',
  FP16: 'float16',
  FP32: 'float32',
  FP64: 'float64',
  BYTES: 'string',
} as const satisfies Partial<Record<DataType, string>>;

type OnnxRuntimeType = (typeof onnxRuntimeTypes)[keyof typeof onnxRuntimeTypes];

const byType = new Map<string, DataType>(
  Object.entries(onnxRuntimeTypes).map(([datatype, type]) => [type, datatype as DataType]),
);

export const dataTypeOfOnnxRuntime = (type: string): DataType | undefined => byType.get(type);

/** Undefined for a datatype that ONNX Runtime's binding lacks. */
export function onnxRuntimeType(datatype: DataType): OnnxRuntimeType | undefined {
  return datatype === 'BF16' ? undefined : onnxRuntimeTypes[datatype];
}

/** BF16 as FP32, which holds each of its numbers; other tensors as they are. */
export function widened(tensor: Tensor): Tensor {
  if (tensor.datatype !== 'BF16') return tensor;
  const bits = elements(tensor as Tensor & { datatype: 'BF16' });
  const singles = new Uint32Array(bits.length);
  bf16ToSingles(bits, singles);
  return { ...tensor, datatype: 'FP32', data: new Uint8Array(singles.buffer) };
}

/** FP32 as BF16: exact for numbers that were BF16 before. */
export function narrowed(tensor: Tensor): Tensor {
  const { buffer, byteOffset, length } = elements(tensor as Tensor & { datatype: 'FP32' });
  const bits = new Uint16Array(length);
  singlesToBf16(new Uint32Array(buffer, byteOffset, length), bits);
  return { ...tensor, datatype: 'BF16', data: new Uint8Array(bits.buffer) };
}

/**
 * The tensor as an ONNX Runtime tensor: a view on its bytes, except BYTES, which become strings, and BF16, which becomes
 * FP32: the binding has no BF16, so models are opened with FP32 inputs in its place.
 * @throws TensorError naming the tensor, and the element that the binding would change
 */
export function toOnnxRuntime(given: Tensor): OrtModule.Tensor {
  const tensor = widened(given);
  const { name, datatype, shape } = tensor;
  const type = onnxRuntimeType(datatype);
  if (type === undefined) throw new TensorError(`tensor '${name}' is ${datatype}, which ONNX Runtime cannot be given`);
  const { Tensor: OrtTensor } = loadOnnxRuntime();
  if (datatype === 'BYTES') return new OrtTensor('string', toStrings(tensor), shape);
  return new OrtTensor(type, elements(tensor) as OrtModule.Tensor.DataType, shape);
}

/** The binding cuts strings at their first NUL, and has no form for bytes that are not UTF-8. */
function toStrings(tensor: Tensor): string[] {
  const strings: string[] = [];
  for (const element of bytesElements(tensor)) {
    const text = asBuffer(element).toString('utf8');
    const problem = text.includes('\0')
      ? 'holds a NUL byte'
      : text.includes('\ufffd') && !isUtf8(element)
        ? 'is not UTF-8'
        : undefined;
    if (problem !== undefined) {
      throw new TensorError(
        `tensor '${tensor.name}': element ${strings.length} ${problem}, which ONNX Runtime's binding cannot carry as text`,
      );
    }
    strings.push(text);
  }
  return strings;
}

/** @throws TensorError if the type has no datatype */
export function fromOnnxRuntime({ name, value }: NamedValue<OrtModule.Tensor>): Tensor {
  const { type, dims: shape, data } = value;
  const datatype = byType.get(type);
  if (datatype === undefined) throw new TensorError(`output '${name}' has the type ${type}, which has no datatype`);
  if (datatype === 'BYTES') return { name, datatype, shape, data: packBytes(data as string[]) };
  const { buffer, byteOffset, byteLength } = data as Exclude<typeof data, string[]>;
  return { name, datatype, shape, data: new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength) };
}

export interface OutputType {
  /** onnx.proto, TensorProto.DataType. */
  readonly elementType: number;
  /** Numbers and names of varying sizes. Empty for a scalar, and also for a tensor of unknown rank. */
  readonly shape: readonly (number | string | undefined)[];
}

/**
 * A session run by the binding's own calls, each of which blocks the thread until it is done. The package's
 * `InferenceSession` makes the same calls behind two promises and a turn of the event loop, which take as long as a
 * small model does. It also keys values by name in object literals, where `__proto__` is no key.
 */
export class NativeSession {
  readonly #session: BindingModule.Binding.InferenceSession;
  readonly #bfloat16Outputs: ReadonlySet<string>;
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];

  /**
   * @param model the path of a file, or its bytes
   * @param bfloat16Outputs outputs that are FP32 in the model, and returned as BF16
   * @throws OnnxRuntimeError
   */
  constructor(model: string | Uint8Array, options: SessionOptions, bfloat16Outputs: readonly string[] = []) {
    const { binding, initOrt } = loadBinding();
    initOrt();
    this.#bfloat16Outputs = new Set(bfloat16Outputs);
    this.#session = new binding.InferenceSession();
    withReason(() => {
      if (typeof model === 'string') this.#session.loadModel(model, options);
      else this.#session.loadModel(model.buffer as ArrayBuffer, model.byteOffset, model.byteLength, options);
    });
    this.inputNames = this.#session.inputMetadata.map(({ name }) => name);
    // A file may list an output twice.
    this.outputNames = [...new Set(this.#session.outputMetadata.map(({ name }) => name))];
  }

  /**
   * Returns the values of `fetches` in their order. The names do not matter: JavaScript would move names such as `311`
   * to the front of an object's keys.
   * @param fetches a tensor to write to, or null to let ONNX Runtime make one
   * @throws OnnxRuntimeError
   */
  run(
    feeds: readonly NamedValue<OrtModule.Tensor>[],
    fetches: readonly NamedValue<OrtModule.Tensor | null>[],
  ): NamedValue<OrtModule.Tensor>[] {
    const run = (): object => this.#session.run(keyed(feeds), keyed(fetches), {});
    // oxlint-disable-next-line typescript/no-restricted-types -- what the binding gives; it is taken apart here
    const results = withReason(run) as Record<string, unknown>;
    // The binding sets the result `__proto__` as the prototype of this object, where reading it finds it again.
    return fetches.map(({ name }) => ({ name, value: results[name] as OrtModule.Tensor }));
  }

  /** Runs the model once. Returns `outputs` in that order, or all in the model's order if none are named. */
  runTensors(inputs: readonly Tensor[], outputs: readonly string[] = this.outputNames): Tensor[] {
    const feeds = inputs.map((input) => ({ name: input.name, value: toOnnxRuntime(input) }));
    return this.run(
      feeds,
      outputs.map((name) => ({ name, value: null })),
    ).map((output) => {
      const tensor = fromOnnxRuntime(output);
      return this.#bfloat16Outputs.has(output.name) ? narrowed(tensor) : tensor;
    });
  }

  /** What ONNX Runtime has found out about its outputs that are tensors. */
  outputTypes(): ReadonlyMap<string, OutputType> {
    const tensors = this.#session.outputMetadata.filter(({ isTensor }) => isTensor);
    return new Map(
      tensors.map(({ name, type: elementType, shape, symbolicDimensions }) => [
        name,
        { elementType, shape: shape.map((size, at) => (size < 0 ? symbolicDimensions[at] || undefined : size)) },
      ]),
    );
  }

  endProfiling(): void {
    this.#session.endProfiling();
  }

  release(): void {
    this.#session.dispose();
  }
}

function withReason<Result>(step: () => Result): Result {
  try {
    return step();
  } catch (error) {
    throw new OnnxRuntimeError((error as Error).message);
  }
}

function keyed<Value>(values: readonly NamedValue<Value>[]): Record<string, Value> {
  const byName = Object.create(null) as Record<string, Value>;
  for (const { name, value } of values) byName[name] = value;
  return byName;
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
