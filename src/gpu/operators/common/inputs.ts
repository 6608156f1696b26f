/** Helpers for operators to read inputs and attributes. */
import { Unsupported } from '../../../operators/index.ts';
import { elementCount, elementBytes, type DataType } from '../../../tensor/index.ts';
import type { Emitter, Value } from '../types.ts';
import { forEachElement, written } from './elements.ts';

/** @throws Unsupported if the output is omitted or not used */
export function requiredOutput(emitter: Emitter, index = 0): Value {
  const output = emitter.output(index);
  if (output === undefined) throw new Unsupported(`its output ${index} is not used`);
  return output;
}

/**
 * Converts a value that is kept in 16 bits to its datatype, into scratch memory; other values stay as they are. For
 * operators that rarely read such a value. The others convert it while they read.
 */
export function asDeclared(emitter: Emitter, value: Value): Value {
  if (value.kept === value.datatype) return value;
  const buffer = emitter.scratch(value.elements * elementBytes[value.datatype]);
  const output = written({ buffer, kept: value.datatype });
  forEachElement(emitter, 'convert', value.elements, { input: value, output }, ({ input, output: to }) =>
    to.set('i', input.at('i')),
  );
  return { ...value, buffer, kept: value.datatype };
}

/** A value in scratch memory, for a result that only this operator's next kernel reads. */
export function scratchValue(emitter: Emitter, datatype: DataType, shape: readonly number[]): Value {
  const elements = elementCount(shape);
  const buffer = emitter.scratch(elements * elementBytes[datatype]);
  return { name: 'in between', datatype, shape, elements, buffer, constant: false, kept: datatype };
}
