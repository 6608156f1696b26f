/** A case of an operator: one node with its inputs, and how ONNX Runtime computes the same. */
import type { AttributeValue, GraphBuilder } from '../../../src/onnx/index.ts';
import { arrayOf, elementCount, tensorOf, type DataType, type Tensor } from '../../../src/tensor/index.ts';

export interface CaseInput {
  readonly tensor: Omit<Tensor, 'name'>;
  /** Constant in the program: axes, sizes, a scale. */
  readonly constant: boolean;
}

export interface Case {
  /** Type of the operator in the registry, with its domain unless that is ONNX's. */
  readonly operator: string;
  /** For the message of a failure. */
  readonly name: string;
  /** Undefined for an omitted input. */
  readonly inputs: readonly (CaseInput | undefined)[];
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  /** Of each output; undefined for an unused one. */
  readonly outputs: readonly (DataType | undefined)[];
  readonly opset: number;
  /** Adds nodes that compute the same, if ONNX Runtime lacks the operator. Returns the names of the outputs. */
  readonly reference: ((graph: GraphBuilder, inputs: readonly string[]) => readonly string[]) | undefined;
  /** Weights that are kept in another type than the graph says, by input. */
  readonly kept: Readonly<Record<number, DataType>>;
  /** Relative to the largest magnitude of the expected output; undefined: by datatype. */
  readonly tolerance: number | undefined;
}

/** Pseudorandom numbers in [0, 1). They are the same in each run, so that cases do not change. */
export function sequence(seed: number): () => number {
  let state = (seed * 2_654_435_761 + 12_345) >>> 0;
  return () => {
    // xorshift32: its period is 2^32 - 1, and the state must not be 0.
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    if (state === 0) state = 88_675_123;
    return state / 2 ** 32;
  };
}

/** Rounds to the nearest 16-bit float, ties to even, and gives its bits. */
export function halfBits(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = Math.abs(Math.fround(value));
  if (Number.isNaN(magnitude)) return 0x7e00;
  if (magnitude >= 65_520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(magnitude)));
  const scaled = magnitude / 2 ** (exponent - 10);
  const floor = Math.floor(scaled);
  const rest = scaled - floor;
  const rounded = rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
  // A mantissa that rounds up to 2048 carries into the exponent.
  return sign | (magnitude === 0 ? 0 : rounded < 1024 ? rounded : ((exponent + 15) << 10) + (rounded - 1024));
}

export function bfloat16Bits(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  if (Number.isNaN(value)) return 0x7fc0;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

type Numeric = Exclude<DataType, 'BYTES'>;

/** A tensor of plain numbers; for 16-bit floats they are rounded. */
export function tensor(datatype: DataType, shape: readonly number[], values: readonly number[]): Omit<Tensor, 'name'> {
  const kind = datatype as Numeric;
  const make = (): InstanceType<(typeof arrayOf)[Numeric]> => {
    if (kind === 'FP16') return Uint16Array.from(values, halfBits);
    if (kind === 'BF16') return Uint16Array.from(values, bfloat16Bits);
    if (kind === 'INT64' || kind === 'UINT64')
      return arrayOf[kind].from(values.map((value) => BigInt(Math.trunc(value))));
    return (arrayOf[kind] as typeof Float32Array).from(values);
  };
  return tensorOf('', datatype, shape, make());
}

/** Test values of a datatype, with both signs if it has them. */
export function filled(datatype: DataType, shape: readonly number[], seed = 1, scale = 2): Omit<Tensor, 'name'> {
  const next = sequence(seed + shape.length * 7 + elementCount(shape));
  const values = Array.from({ length: elementCount(shape) }, () => {
    const value = (next() * 2 - 1) * scale;
    if (datatype === 'BOOL') return value > 0 ? 1 : 0;
    if (datatype.startsWith('UINT')) return Math.floor(Math.abs(value) * 50);
    return datatype.startsWith('INT') ? Math.round(value * 20) : value;
  });
  return tensor(datatype, shape, values);
}

export const given = (of: Omit<Tensor, 'name'>): CaseInput => ({ tensor: of, constant: false });
export const known = (of: Omit<Tensor, 'name'>): CaseInput => ({ tensor: of, constant: true });
export const ints = (...values: number[]): CaseInput => known(tensor('INT64', [values.length], values));
export const scalar = (datatype: DataType, value: number): CaseInput => known(tensor(datatype, [], [value]));

export interface CaseOptions {
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  readonly outputs?: readonly (DataType | undefined)[];
  readonly opset?: number;
  readonly reference?: Case['reference'];
  readonly kept?: Case['kept'];
  readonly tolerance?: number;
}

/** A case; its first output has the first input's datatype unless said otherwise. */
export function operatorCase(
  operator: string,
  name: string,
  inputs: readonly (CaseInput | undefined)[],
  options: CaseOptions = {},
): Case {
  return {
    operator,
    name,
    inputs,
    attributes: options.attributes ?? {},
    outputs: options.outputs ?? [inputs[0]?.tensor.datatype ?? 'FP32'],
    opset: options.opset ?? 17,
    reference: options.reference,
    kept: options.kept ?? {},
    tolerance: options.tolerance,
  };
}

/** Splits 'com.microsoft.Gelu' into its domain and 'Gelu'. */
export function operatorName(type: string): { readonly domain: string; readonly name: string } {
  const dot = type.lastIndexOf('.');
  return { domain: dot < 0 ? '' : type.slice(0, dot), name: type.slice(dot + 1) };
}

const described = (input: CaseInput | undefined): string =>
  input === undefined ? '-' : `${input.tensor.datatype}[${input.tensor.shape.join(',')}]`;

/** For the message of a failure: enough to write the case again. */
export function describeCase({ operator, name, inputs, attributes, opset }: Case): string {
  const values = inputs.map((input) => {
    const small = input !== undefined && input.constant && elementCount(input.tensor.shape) <= 16;
    return small ? `${described(input)}=${Buffer.from(input.tensor.data).toString('hex')}` : described(input);
  });
  const shown = JSON.stringify(attributes, (_, value: unknown) => (typeof value === 'bigint' ? Number(value) : value));
  return `${operator} (${name}; opset ${opset}): ${values.join(' ')} ${shown}`;
}
