/**
 * The seam between the compiler of programs and the operators: an operator sees its node with every shape known, and
 * emits launches over buffers whose places are assigned later. Nothing here runs.
 */
import type { AttributeReader, GraphNode } from '../../onnx/index.ts';
import type { DataType, Tensor } from '../../tensor/index.ts';
import type { MatmulDescription } from '../driver/types.ts';
import type { ProgramSettings } from '../program/types.ts';
import type { WorkArgument } from '../program/work.ts';

/** Some bytes that launches read or write: a weight, an activation, or part of either. */
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

/** A tensor as an operator sees it. Its elements are contiguous and in row-major order. */
export interface Value {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly elements: number;
  readonly buffer: Buffer;
  /** True for weights and folded constants. */
  readonly constant: boolean;
  /** Where a weight is kept in another type than the graph says (16 bits for 32): its bytes have this type. */
  readonly kept: DataType;
}

export type KernelArgument =
  | { readonly type: 'read' | 'write' | 'read-write'; readonly buffer: Buffer }
  | Exclude<WorkArgument<Buffer>, { type: 'pointer' }>;

export interface Emitter {
  readonly settings: ProgramSettings;
  readonly node: GraphNode;
  /** Version of the node's operator set, where operators changed their meaning (Softmax before 13). */
  readonly opset: number;
  /** Undefined where the optional input is left out. */
  input(index: number): Value | undefined;
  /** @throws Unsupported when it is left out, or has none of the types that are `allowed` */
  required(index: number, allowed?: readonly DataType[]): Value;
  /** The content of an input that is known when the program is made (axes, sizes, scales): undefined when it is not. */
  constant(index: number): Tensor | undefined;
  /** Undefined where nobody takes the optional output. */
  output(index: number): Value | undefined;
  readonly attribute: AttributeReader;
  /** Scratch memory that lives for this node's launches only. */
  scratch(bytes: number): Buffer;
  part(buffer: Buffer, byteOffset: number, bytes: number): Buffer;
  /**
   * Weights that lie one behind the other in one layer, by the places of the inputs.
   *
   * @throws Unsupported where they do not
   */
  weightsTogether(inputs: readonly number[]): Series;
  /** All outputs in one buffer, each a part of it. They must be of the same size. */
  outputsTogether(): Series;
  /**
   * Adds a kernel to the translation unit: `source` defines one `KERNEL void NAME(...)`, with NAME in place of its
   * name; equal sources are added once. Gives the name it got.
   */
  kernel(hint: string, source: string): string;
  launch(launch: {
    readonly kernel: string;
    readonly grid: readonly [number, number?, number?];
    readonly block: readonly [number, number?, number?];
    readonly sharedBytes?: number;
    readonly arguments: readonly KernelArgument[];
  }): void;
  matmul(
    description: Omit<MatmulDescription, 'workspaceBytesMax' | 'tf32'>,
    operands: { readonly a: Buffer; readonly b: Buffer; readonly d: Buffer; readonly bias?: Buffer },
  ): void;
  copy(from: Buffer, to: Buffer, bytes: number): void;
  fill(to: Buffer, byteValue: number, bytes: number): void;
}

/** Thrown by an operator that cannot run a node; the message is the reason, in words that a user understands. */
export class Unsupported extends Error {
  override readonly name = 'Unsupported';
}

export interface Operator {
  /** ONNX operator, with its domain where it is not the standard one: 'com.microsoft.Gelu'. */
  readonly type: string;
  /**
   * The input that output 0 is a view of (same bytes, other shape), if this node moves nothing: then `emit` is not
   * called. Undefined or absent: it is none.
   */
  readonly viewOf?: (emitter: Emitter) => number | undefined;
  /** @throws Unsupported before it has emitted anything */
  readonly emit: (emitter: Emitter) => void;
  /**
   * Where each element of output 0 depends on the same element of its (broadcast) inputs only: the expression in C.
   * Chains of such nodes become one kernel.
   */
  readonly elementwise?: (emitter: Emitter, inputs: readonly string[]) => ElementExpression | undefined;
}

export interface ElementExpression {
  /** C expression over the inputs' names; of the C type that the output's datatype computes in. */
  readonly expression: string;
}
