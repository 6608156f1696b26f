/**
 * The interface between the compiler and the operators. An operator gets its node with all shapes known, and emits
 * launches over buffers, which get places in memory later.
 */
import type { AttributeReader, AttributeValue, GraphNode } from '../../onnx/index.ts';
import type { families, fused } from '../../operators/index.ts';
import type { DataType, Tensor } from '../../tensor/index.ts';
import type { MatmulDescription } from '../driver/types.ts';
import type { ProgramSettings } from '../program/types.ts';
import type { WorkArgument } from '../program/work.ts';

/** Bytes that launches read or write: a weight, an activation, a constant, or part of one. */
export interface Buffer {
  /** Identity of the storage; views share it. */
  readonly id: number;
  readonly byteOffset: number;
  readonly bytes: number;
}

/** Buffers of one size at equal distances. */
export interface Series {
  /** From the start of the first to the end of the last. */
  readonly buffer: Buffer;
  readonly stepBytes: number;
}

/** A tensor, contiguous and in row-major order. */
export interface Value {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly elements: number;
  readonly buffer: Buffer;
  /** True for weights and folded constants. */
  readonly constant: boolean;
  /** The type of its bytes: FP32 weights and activations may be kept in 16 bits. */
  readonly kept: DataType;
}

/** A value by its type alone: what an operator knows of one before it has a buffer. */
export type Term = Pick<Value, 'name' | 'datatype' | 'shape'>;

/**
 * Writes a node as nodes of other operators. These are fused with their neighbours like those of a model, so an
 * operator that is rare needs no kernel of its own.
 */
export interface Writer {
  readonly node: GraphNode;
  readonly opset: number;
  readonly input: (index: number) => Term | undefined;
  /** @throws Unsupported if the input is omitted, or has a type that is not `allowed` */
  readonly required: (index: number, allowed?: readonly DataType[]) => Term;
  readonly constant: (index: number) => Tensor | undefined;
  readonly attribute: AttributeReader;
  /** The first result, and one behind it if a node uses it. */
  readonly output: Term;
  readonly result: (place: number) => Term | undefined;
  /** A node with one result. 'own': it keeps the attributes of the node that is written. */
  made(
    type: KernelName,
    inputs: readonly (Term | undefined)[],
    result: Omit<Term, 'name'>,
    attributes?: Attributes | 'own',
  ): Term;
  /** The same for a node with several results. */
  madeAll(
    type: KernelName,
    inputs: readonly (Term | undefined)[],
    results: readonly Omit<Term, 'name'>[],
    attributes?: Attributes | 'own',
  ): readonly Term[];
  /** An elementwise node. The result has the broadcast shape of its inputs, and unless given the type of the first. */
  map(
    type: KernelName,
    inputs: readonly (Term | undefined)[],
    datatype?: DataType,
    attributes?: Attributes | 'own',
  ): Term;
  /** In another type. */
  cast(input: Term, datatype: DataType): Term;
  /** Along these axes, which keep the size 1. */
  reduced(type: KernelName, input: Term, axes: readonly number[]): Term;
  /** The same bytes with another shape. */
  viewed(input: Term, shape: readonly number[]): Term;
  permuted(input: Term, order: readonly number[]): Term;
  repeated(input: Term, shape: readonly number[]): Term;
  /** A constant: a number, or the bytes of one. */
  number(datatype: DataType, value: number | Uint8Array): Term;
  numbers(datatype: DataType, shape: readonly number[], values: readonly number[]): Term;
  /** 0, 1, 2, ... along `axis` of a tensor of `shape` (default: the output's), whose other sizes are 1. */
  counted(axis: number, shape?: readonly number[], datatype?: DataType): Term;
  /** The result at this place (default: the first), in its output's shape. One that no node uses is left out. */
  give(result: Term, place?: number): void;
}

export type Attributes = Readonly<Record<string, AttributeValue>>;

export type KernelArgument =
  | { readonly type: 'read' | 'write' | 'read-write'; readonly buffer: Buffer }
  | Exclude<WorkArgument<Buffer>, { type: 'pointer' }>;

export interface Emitter {
  readonly settings: ProgramSettings;
  readonly node: GraphNode;
  /** Version of the node's operator set: some operators changed their meaning (Softmax in 13). */
  readonly opset: number;
  /** Undefined if the optional input is omitted. */
  input(index: number): Value | undefined;
  /** @throws Unsupported if the input is omitted, or has a type that is not `allowed` */
  required(index: number, allowed?: readonly DataType[]): Value;
  /** The content of an input that is constant (axes, sizes, scales); undefined if it is computed, or a weight. */
  constant(index: number): Tensor | undefined;
  /** Undefined if the optional output is omitted or not used. */
  output(index: number): Value | undefined;
  readonly attribute: AttributeReader;
  /** Scratch memory for this node's launches. */
  scratch(bytes: number): Buffer;
  part(buffer: Buffer, byteOffset: number, bytes: number): Buffer;
  /**
   * Adjacent weights of one layer, by the indices of the inputs.
   *
   * @throws Unsupported if the weights are not adjacent
   */
  weightsTogether(inputs: readonly number[]): Series;
  /** All outputs in one buffer, each a part of it. They must be of the same size. */
  outputsTogether(): Series;
  /**
   * Adds a kernel to the translation unit, once for equal sources. `source` defines one `KERNEL void NAME(...)`.
   * Returns the name that replaces NAME.
   */
  kernel(hint: string, source: string): string;
  launch(launch: {
    readonly kernel: string;
    readonly grid: readonly [number, number?, number?];
    readonly block: readonly [number, number?, number?];
    readonly arguments: readonly KernelArgument[];
  }): void;
  matmul(
    description: Omit<MatmulDescription, 'workspaceBytesMax' | 'tf32'>,
    operands: { readonly a: Buffer; readonly b: Buffer; readonly d: Buffer; readonly bias?: Buffer },
  ): void;
  copy(from: Buffer, to: Buffer, bytes: number): void;
  fill(to: Buffer, byteValue: number, bytes: number): void;
}

/** Thrown by an operator that cannot run a node. The message is the reason, for users: it becomes an obstacle. */
export class Unsupported extends Error {
  override readonly name = 'Unsupported';
  /** With other sizes of the inputs it would be the same. */
  readonly isAnySize: boolean;
  constructor(message: string, { isAnySize = false }: { readonly isAnySize?: boolean } = {}) {
    super(message);
    this.isAnySize = isAnySize;
  }
}

/** Families of operators that have kernels. */
export type KernelFamily = Exclude<keyof typeof families, 'withoutKernels'>;

/** The operators of a family, with the ones that fusion makes. */
export type KernelNameOf<Family extends KernelFamily> =
  | (keyof (typeof families)[Family] & string)
  | (Family extends keyof typeof fused ? keyof (typeof fused)[Family] & string : never);

export type KernelName = { [Family in KernelFamily]: KernelNameOf<Family> }[KernelFamily];

export interface Operator<Type extends string = string> {
  /** ONNX operator, with its domain unless that is ONNX's: 'com.microsoft.Gelu'. */
  readonly type: Type;
  /**
   * The input that output 0 is a view of (the same bytes with another shape); then `emit` is not called. Undefined or
   * absent: output 0 is no view.
   */
  readonly viewOf?: (emitter: Emitter) => number | undefined;
  /** @throws Unsupported before it has emitted anything */
  readonly emit: (emitter: Emitter) => void;
  /** Writes the node as others, which are emitted in its place. */
  readonly write?: (writer: Writer) => void;
  /**
   * If each element of output 0 depends only on the same element of the (broadcast) inputs: the C expression over the
   * inputs' names, of the C type that the output's datatype is computed in. Chains of elementwise nodes become one kernel.
   */
  readonly elementwise?: (emitter: Emitter, inputs: readonly string[]) => string | undefined;
}

/** An operator that is made of others. */
export const composed = <const Type extends KernelName>(
  type: Type,
  write: (writer: Writer) => void,
): Operator<Type> => ({
  type,
  write,
  // Only a node without elements is left as it is.
  emit() {},
});

/** The engine's own operators: those that have a record, and those that fusion makes. */
export type Kernels = Operator<KernelName>;
