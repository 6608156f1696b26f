/**
 * The interface between the compiler and the operators. An operator gets its node with all shapes known, and emits
 * launches over buffers, which get places in memory later.
 */
import type { AttributeReader, GraphNode } from '../../onnx/index.ts';
import type { families, fused, Expression, Term, Write } from '../../operators/index.ts';
import type { DataType, Tensor } from '../../tensor/index.ts';
import type { MatmulDescription } from '../driver/types.ts';
import type { ProgramSettings } from '../types.ts';
import type { WorkArgument } from '../work.ts';

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
export interface Value extends Term {
  readonly elements: number;
  readonly buffer: Buffer;
  /** True for weights and folded constants. */
  readonly constant: boolean;
  /** The type of its bytes: FP32 weights and activations may be kept in 16 bits. */
  readonly storedType: DataType;
}

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

type Families = typeof families;

/** The operators of a family that are neither an expression nor written as others. */
type NotWritten<Family extends keyof Families> = {
  [Type in keyof Families[Family] & string]: Families[Family][Type] extends
    { readonly write: Write } | { readonly expression: Expression }
    ? never
    : Type;
}[keyof Families[Family] & string];

/** Families of operators that have kernels. */
export type KernelFamily = {
  [Family in keyof Families]: NotWritten<Family> extends never ? never : Exclude<Family, 'withoutKernels'>;
}[keyof Families];

/** The operators of a family that have kernels, with the ones that fusion makes. */
export type KernelNameOf<Family extends KernelFamily> =
  NotWritten<Family> | (Family extends keyof typeof fused ? keyof (typeof fused)[Family] & string : never);

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
  readonly write?: Write;
  /**
   * If each element of output 0 depends only on the same element of the (broadcast) inputs: the C expression over the
   * inputs' names, of the C type that the output's datatype is computed in. Chains of elementwise nodes become one kernel.
   */
  readonly elementwise?: (emitter: Emitter, inputs: readonly string[]) => string;
}

/** The engine's own operators: those that have a record, and those that fusion makes. */
export type Kernels = Operator<KernelName>;
