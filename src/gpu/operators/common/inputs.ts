/** Helpers for operators to read inputs and attributes. */
import { Unsupported } from '../../../operators/index.ts';
import { elementCount, elementBytes, type DataType } from '../../../tensor/index.ts';
import type { Emitter, Value } from '../types.ts';
import { forEachElement, written, type Stored } from './elements.ts';

/** @throws Unsupported if the output is omitted or not used */
export function requiredOutput(emitter: Emitter): Value {
  const output = emitter.output(0);
  if (output === undefined) throw new Unsupported('its output 0 is not used');
  return output;
}

/**
 * Converts a value that is kept in 16 bits to its datatype, into scratch memory; other values stay as they are. For
 * operators that rarely read such a value. The others convert it while they read.
 */
export function asDeclared(emitter: Emitter, value: Value): Value {
  if (value.storedType === value.datatype) return value;
  return { ...value, ...convert(emitter, value, value.datatype) };
}

/** The same elements in another type, in scratch memory. */
export function convert(emitter: Emitter, { buffer, storedType }: Stored, to: DataType): Stored {
  const count = buffer.bytes / elementBytes[storedType];
  const converted = { buffer: emitter.scratch(count * elementBytes[to]), storedType: to };
  const tensors = { input: { buffer, storedType }, output: written(converted) };
  forEachElement(emitter, 'convert', count, tensors, ({ input, output }) => output.set('i', input.at('i')));
  return converted;
}

/** A value in scratch memory, for a result that only this operator's next kernel reads. */
export function scratchValue(emitter: Emitter, datatype: DataType, shape: readonly number[]): Value {
  const elements = elementCount(shape);
  const buffer = emitter.scratch(elements * elementBytes[datatype]);
  return { name: 'in between', datatype, shape, elements, buffer, constant: false, storedType: datatype };
}
