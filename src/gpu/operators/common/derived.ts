/** Builds operators from others: gives an operator a node with changed inputs, outputs and attributes. */
import type { AttributeOf, AttributeReader } from '../../../onnx/index.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import type { Emitter, Operator, Value } from '../types.ts';
import { requiredFrom } from './element.ts';
import { product, stridesOf } from './indexing.ts';
import { moveStrided, sideOf } from './launching.ts';

export interface Derivation {
  /** All inputs; undefined for an omitted one. */
  readonly inputs: readonly (Value | undefined)[];
  readonly outputs: readonly (Value | undefined)[];
  /** Replacements for the node's attributes, by name. */
  readonly attributes?: Readonly<Record<string, number | string | readonly number[]>>;
}

/** The operator of this type among `operators`. */
export const operatorOf = (operators: readonly Operator[], type: string): Operator =>
  operators.find((operator) => operator.type === type)!;

export function derived(emitter: Emitter, { inputs, outputs, attributes }: Derivation): Emitter {
  const attribute: AttributeReader = (name, otherwise) =>
    (attributes?.[name] as AttributeOf<typeof otherwise> | undefined) ?? emitter.attribute(name, otherwise);
  return {
    ...emitter,
    input: (index) => inputs[index],
    required: requiredFrom((index) => inputs[index]),
    constant: () => undefined,
    output: (index) => outputs[index],
    attribute,
  };
}

/** A value in scratch memory. */
export function scratchValue(emitter: Emitter, datatype: DataType, shape: readonly number[]): Value {
  const elements = product(shape);
  const buffer = emitter.scratch(elements * elementBytes[datatype]);
  return { name: 'in between', datatype, shape, elements, buffer, constant: false, kept: datatype };
}

/** Reads a value as a tensor of `sizes`, and writes it with its axes in another order. */
export function emitPermutation(
  emitter: Emitter,
  hint: string,
  value: Value,
  sizes: readonly number[],
  order: readonly number[],
  to: Value,
): void {
  const strides = stridesOf(sizes);
  const shape = order.map((axis) => sizes[axis]!);
  const walk = order.map((axis) => strides[axis]!);
  moveStrided(emitter, hint, shape, value.datatype, sideOf(value, walk), sideOf(to, stridesOf(shape)));
}

/** A value with its axes in another order, in scratch memory; the value itself if the order is the same. */
export function permuted(emitter: Emitter, hint: string, value: Value, order: readonly number[]): Value {
  if (order.every((axis, place) => axis === place)) return value;
  const to = scratchValue(
    emitter,
    value.datatype,
    order.map((axis) => value.shape[axis]!),
  );
  emitPermutation(emitter, hint, value, value.shape, order, to);
  return to;
}
