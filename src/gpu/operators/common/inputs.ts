/** Helpers for operators to read inputs and attributes. */
import { elementBytes, elements, type DataType } from '../../../tensor/index.ts';
import type { AttributeProto } from '../../../onnx/index.ts';
import { type Emitter, Unsupported, type Value, type Writer } from '../types.ts';
import { forEachElement } from './elements.ts';
import { product } from './indexing.ts';

type Reader = Pick<Writer, 'node' | 'input' | 'constant'>;

/**
 * The elements of an input that is constant; undefined if it is omitted.
 *
 * @throws Unsupported if it is computed at run time
 */
export function knownNumbers(emitter: Reader, index: number, what: string): number[] | undefined {
  const value = emitter.input(index);
  if (value === undefined) return undefined;
  const tensor = emitter.constant(index);
  if (tensor === undefined) throw new Unsupported(`'${value.name}', its ${what}, is computed at run time`);
  return Array.from(elements(tensor), Number);
}

/** A list that is an attribute in old versions of an operator, and an input in new ones. */
export function listOf(emitter: Reader, attribute: string, input: number): number[] | undefined {
  const known = knownNumbers(emitter, input, attribute);
  if (known !== undefined) return known;
  return findAttribute(emitter, attribute)?.ints?.map(Number);
}

export function findAttribute(emitter: Reader, name: string): AttributeProto | undefined {
  return emitter.node.proto.attribute.find((attribute) => attribute.name === name);
}

/** @throws Unsupported if the output is omitted or not used */
export function requiredOutput(emitter: Emitter, index = 0): Value {
  const output = emitter.output(index);
  if (output === undefined) throw new Unsupported(`its output ${index} is not used`);
  return output;
}

/**
 * The value with bytes of its datatype: a value that is kept in 16 bits is converted into scratch memory first. For
 * operators that rarely meet one; the others convert while they read.
 */
export function asDeclared(emitter: Emitter, value: Value): Value {
  if (value.kept === value.datatype) return value;
  const buffer = emitter.scratch(value.elements * elementBytes[value.datatype]);
  const output = { buffer, kept: value.datatype, access: 'write' } as const;
  forEachElement(emitter, 'convert', value.elements, { input: value, output }, ({ input, output: to }) =>
    to.set('i', input.at('i')),
  );
  return { ...value, buffer, kept: value.datatype };
}

/** A value in scratch memory. */
export function scratchValue(emitter: Emitter, datatype: DataType, shape: readonly number[]): Value {
  const elements = product(shape);
  const buffer = emitter.scratch(elements * elementBytes[datatype]);
  return { name: 'in between', datatype, shape, elements, buffer, constant: false, kept: datatype };
}
