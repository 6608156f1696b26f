/** The specification that requests are checked against, prepared once per model. */
import { declaredRows } from '../../rows/index.ts';
import { TensorError, elementBytes, type DataType } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { FunctionVersion, ModelMetadata, TensorSpec } from '../types.ts';

export interface ModelSpec {
  /** Those that each call must give. */
  readonly inputs: readonly TensorSpec[];
  /** Those that a call may leave out. */
  readonly optionalInputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  readonly inputByName: ReadonlyMap<string, TensorSpec>;
  readonly outputByName: ReadonlyMap<string, TensorSpec>;
  readonly outputNames: readonly string[];
  /** Dimension names that occur more than once in the inputs: their sizes have to agree. */
  readonly agreeing: ReadonlySet<string>;
  /** Dimension 0 of every input and output is the batch; whether its rows are independent is another question. */
  readonly batched: boolean;
}

const prepared = new WeakMap<ModelMetadata, ModelSpec>();

/** The {@link ModelSpec} of a model's metadata, made once for each metadata object. */
export function modelSpec(metadata: ModelMetadata): ModelSpec {
  const known = prepared.get(metadata);
  if (known !== undefined) return known;
  const { inputs, optionalInputs = [], outputs } = metadata;
  const spec: ModelSpec = {
    inputs,
    optionalInputs,
    outputs,
    inputByName: new Map([...inputs, ...optionalInputs].map((input) => [input.name, input])),
    outputByName: new Map(outputs.map((output) => [output.name, output])),
    outputNames: outputs.map(({ name }) => name),
    agreeing: repeatedNames([...inputs, ...optionalInputs]),
    batched: declaredRows(metadata).kind === 'open',
  };
  prepared.set(metadata, spec);
  return spec;
}

/** @throws HostError 'not-ready' */
export function specOf(version: FunctionVersion): ModelSpec {
  if (version.metadata === undefined) {
    throw new HostError(
      'not-ready',
      `function '${version.name}' version ${version.version} has not been validated yet`,
    );
  }
  return modelSpec(version.metadata);
}

function repeatedNames(inputs: readonly TensorSpec[]): Set<string> {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  for (const { dimensionNames } of inputs) {
    for (const name of dimensionNames) {
      if (name === undefined) continue;
      if (seen.has(name)) repeated.add(name);
      seen.add(name);
    }
  }
  return repeated;
}

/** A name from a client, shortened for a message. */
export function shown(name: string): string {
  return name.length <= 80 ? name : `${name.slice(0, 77)}...`;
}

/** `[batch,3,224,?]`: varying dimensions have the model's name for them, or '?'. */
export function shapeText({ shape, dimensionNames, anyRank }: TensorSpec): string {
  if (anyRank === true) return '[...]';
  return `[${shape.map((size, index) => (size === -1 ? (dimensionNames[index] ?? '?') : size)).join(',')}]`;
}

/**
 * Checks the shape that a client gave for an input: an array of whole numbers of at least 0, with the model's rank and
 * fixed sizes, whose product is representable.
 * @throws TensorError naming the input and the dimension
 */
export function checkShape(spec: TensorSpec, shape: unknown): readonly number[] {
  if (!Array.isArray(shape)) throw new TensorError(`input '${spec.name}' has no 'shape' that is an array`);
  const takesAny = spec.anyRank === true;
  if (!takesAny && shape.length !== spec.shape.length) {
    throw new TensorError(
      `input '${spec.name}' has ${dimensions(shape.length)}, but the model takes ${dimensions(spec.shape.length)} ${shapeText(spec)}`,
    );
  }
  let bytes = elementBytes[spec.datatype] || 1;
  for (let index = 0; index < shape.length; index++) {
    const size: unknown = shape[index];
    if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) {
      throw new TensorError(
        `input '${spec.name}' has ${sizeText(size)} as dimension ${index}, which must be a whole number of at least 0`,
      );
    }
    const fixed = spec.shape[index];
    if (!takesAny && fixed !== -1 && fixed !== size) {
      throw new TensorError(
        `input '${spec.name}' has ${size} as dimension ${index}, but the model takes ${fixed} there: ${shapeText(spec)}`,
      );
    }
    // Sizes of 0 count as 1: the shape has no bytes, but its other sizes must still be possible for a tensor.
    bytes *= Math.max(1, size);
    if (!Number.isSafeInteger(bytes)) {
      throw new TensorError(`input '${spec.name}' has a shape whose size in bytes is beyond any memory`);
    }
  }
  return shape as number[];
}

/** An input with its actual shape, for the checks below. */
export interface ShapedInput {
  readonly name: string;
  readonly shape: readonly number[];
}

/**
 * Two inputs with different sizes in dimensions that the model gives one name, in a sentence. ONNX Runtime does not
 * look at the names, and converters write `?` or one name for all; but if a run fails, this may be why.
 */
export function disagreement(spec: ModelSpec, tensors: readonly ShapedInput[]): string | undefined {
  if (spec.agreeing.size === 0) return undefined;
  const sizes = new Map<string, { readonly size: number; readonly input: string }>();
  for (const { name, shape } of tensors) {
    const names = spec.inputByName.get(name)?.dimensionNames ?? [];
    for (let index = 0; index < shape.length; index++) {
      const dimension = names[index];
      const size = shape[index];
      if (dimension === undefined || size === undefined || !spec.agreeing.has(dimension)) continue;
      const first = sizes.get(dimension);
      if (first === undefined) sizes.set(dimension, { size, input: name });
      else if (first.size !== size) {
        return `input '${name}' has ${size} as dimension ${index}, but '${dimension}' is ${first.size} in input '${first.input}'`;
      }
    }
  }
  return undefined;
}

/** @throws TensorError naming the first input of the model that is not among `tensors` */
export function checkComplete(spec: ModelSpec, tensors: readonly ShapedInput[]): void {
  if (spec.optionalInputs.length === 0 && tensors.length === spec.inputs.length) return;
  const given = new Set(tensors.map(({ name }) => name));
  const missing = spec.inputs.find(({ name }) => !given.has(name));
  if (missing !== undefined) {
    throw new TensorError(`input '${missing.name}' (${missing.datatype} ${shapeText(missing)}) is missing`);
  }
}

/** Inferences in a request: the size of its batch, or 1 if the model has no batch dimension. */
export function rowsOf(spec: ModelSpec, tensors: readonly ShapedInput[]): number {
  if (!spec.batched) return 1;
  const [first] = spec.inputs;
  return tensors.find(({ name }) => name === first!.name)?.shape[0] ?? 1;
}

/** The error for an unknown input or output; it lists the names that the model has. */
export function unknownName(kind: 'input' | 'output', name: string, spec: ModelSpec): TensorError {
  const known = kind === 'input' ? [...spec.inputs, ...spec.optionalInputs] : spec.outputs;
  const names = known.map((spec) => `'${spec.name}'`).join(', ');
  return new TensorError(`the model has no ${kind} '${shown(name)}'; it has ${names}`);
}

function dimensions(count: number): string {
  return count === 1 ? '1 dimension' : `${count} dimensions`;
}

function sizeText(size: unknown): string {
  if (typeof size === 'number' || typeof size === 'boolean' || size === null) return String(size);
  if (typeof size === 'string') return `'${shown(size)}'`;
  return Array.isArray(size) ? 'an array' : 'an object';
}

/** An input or output for people: a varying size has the model's name for it. */
export interface NamedTensor {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly (number | string)[];
  /** A call may leave it out. */
  readonly optional?: true;
  /** Any number of dimensions. */
  readonly any_rank?: true;
}

function namedTensor({ name, datatype, shape, dimensionNames, anyRank }: TensorSpec): NamedTensor {
  const sizes = shape.map((size, index) => (size === -1 ? (dimensionNames[index] ?? -1) : size));
  return { name, datatype, shape: sizes, ...(anyRank === true && { any_rank: anyRank }) };
}

/** The inputs, optional ones last, and the outputs of a model. */
export function namedTensors({ inputs, optionalInputs = [], outputs }: ModelMetadata) {
  const optional = optionalInputs.map((input): NamedTensor => Object.assign(namedTensor(input), { optional: true }));
  return { inputs: [...inputs.map(namedTensor), ...optional], outputs: outputs.map(namedTensor) };
}
