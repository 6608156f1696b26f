/**
 * Operators written as others, for those that are rare: their nodes are fused with their neighbours like those of a
 * model, so they need no kernels of their own. What they are made of has kernels, or is written in turn.
 */
import type { AttributeProto, AttributeReader, AttributeValue, GraphNode } from '../onnx/index.ts';
import { elements, type DataType, type Tensor } from '../tensor/index.ts';

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

/** A value by its type alone: what an operator knows of one before it has a buffer. */
export interface Term {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
}

/** A node with what is known about it. */
export interface Reader {
  readonly node: GraphNode;
  readonly opset: number;
  readonly input: (index: number) => Term | undefined;
  /** @throws Unsupported if the input is omitted, or has a type that is not `allowed` */
  readonly required: (index: number, allowed?: readonly DataType[]) => Term;
  readonly constant: (index: number) => Tensor | undefined;
  readonly attribute: AttributeReader;
}

/**
 * The C expression of an element over those of its inputs, of the C type that the output's datatype is computed in. ''
 * stands for an input that is omitted.
 */
export type Expression = (
  node: Reader & { readonly output: (index: number) => Term | undefined },
  inputs: readonly string[],
) => string;

/** Writes a node as nodes of other operators. */
export interface Writer extends Reader {
  /** The first result, and one behind it if a node uses it. */
  readonly output: Term;
  readonly result: (place: number) => Term | undefined;
  /** A node with one result. 'own': it keeps the attributes of the node that is written. */
  made(
    type: string,
    inputs: readonly (Term | undefined)[],
    result: Omit<Term, 'name'>,
    attributes?: Attributes | 'own',
  ): Term;
  /** The same for a node with several results. */
  madeAll(
    type: string,
    inputs: readonly (Term | undefined)[],
    results: readonly Omit<Term, 'name'>[],
    attributes?: Attributes | 'own',
  ): readonly Term[];
  /** An elementwise node. The result has the broadcast shape of its inputs, and unless given the type of the first. */
  map(type: string, inputs: readonly (Term | undefined)[], datatype?: DataType, attributes?: Attributes | 'own'): Term;
  /** In another type. */
  cast(input: Term, datatype: DataType): Term;
  /** Along these axes, which keep the size 1. */
  reduced(type: string, input: Term, axes: readonly number[]): Term;
  /** The same bytes with another shape. */
  viewed(input: Term, shape: readonly number[]): Term;
  /** Entries of the first axis. Those of a constant are not copied. */
  part(input: Term, from: number, count: number): Term;
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

export type Write = (writer: Writer) => void;

export type Attributes = Readonly<Record<string, AttributeValue>>;

/** @throws Unsupported unless the value's datatype is one of `allowed` */
export function requireDatatype(value: Term, allowed: readonly DataType[]): void {
  if (!allowed.includes(value.datatype)) {
    throw new Unsupported(`'${value.name}' is ${value.datatype}, but only ${allowed.join(', ')} are covered`);
  }
}

/** {@link Writer.required}, made from {@link Writer.input}. */
export const requiredFrom =
  <Of extends Term>(input: (index: number) => Of | undefined) =>
  (index: number, allowed?: readonly DataType[]): Of => {
    const value = input(index);
    if (value === undefined) throw new Unsupported(`its input ${index} is missing`);
    if (allowed !== undefined) requireDatatype(value, allowed);
    return value;
  };

export const floats: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64'];
export const numbers: readonly DataType[] = [...floats, 'INT32', 'INT64', 'INT8', 'UINT8'];

/**
 * The elements of an input that is constant; undefined if it is omitted.
 *
 * @throws Unsupported if it is computed at run time
 */
export function knownNumbers(reader: Reader, index: number, what: string): number[] | undefined {
  const value = reader.input(index);
  if (value === undefined) return undefined;
  const tensor = reader.constant(index);
  if (tensor === undefined) throw new Unsupported(`'${value.name}', its ${what}, is computed at run time`);
  return Array.from(elements(tensor), Number);
}

/** A list that is an attribute in old versions of an operator, and an input in new ones. */
export function listOf(reader: Reader, attribute: string, input: number): number[] | undefined {
  const known = knownNumbers(reader, input, attribute);
  if (known !== undefined) return known;
  return findAttribute(reader, attribute)?.ints?.map(Number);
}

/** A number for each of `axes`, which are `otherwise` if the attribute is left out. @throws Unsupported for other lengths */
export function eachAxis(reader: Reader, name: string, axes: number, otherwise: number): readonly number[] {
  const given = reader.attribute<readonly number[]>(name, []);
  if (given.length === 0) return Array.from({ length: axes }, () => otherwise);
  if (given.length !== axes) throw new Unsupported(`its ${name} have ${given.length} values for ${axes} axes`);
  return given;
}

export function findAttribute(reader: Reader, name: string): AttributeProto | undefined {
  return reader.node.proto.attribute.find((attribute) => attribute.name === name);
}
