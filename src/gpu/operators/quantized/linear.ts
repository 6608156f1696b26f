/**
 * QuantizeLinear and DequantizeLinear, with one scale, one for each index of an axis, or one for each block along an
 * axis. If the scales broadcast by numpy's rules, the operator is elementwise and joins its neighbours' kernel; else it
 * is a separate kernel.
 */
import { Unsupported } from '../../../operators/index.ts';
import type { DataType } from '../../../tensor/index.ts';
import { axisOf, coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import type { Emitter, KernelName, Operator, Value } from '../types.ts';
import { narrowed } from './products.ts';
import { forEachElement, written } from '../common/elements.ts';

const wholeNumbers = new Set<DataType>(['INT8', 'UINT8', 'INT16', 'UINT16', 'INT32']);

/** x, scale and zero point are C expressions; an omitted zero point is ''. */
type Formula = (emitter: Emitter, x: string, scale: string, zero: string) => string;

const dequantized: Formula = (emitter, x, scale, zero) => {
  const from = emitter.required(0).datatype;
  if (!wholeNumbers.has(from)) throw new Unsupported(`numbers are not dequantised from ${from}`);
  return zero === '' ? `((float)${x} * (float)${scale})` : `((float)((int)${x} - (int)${zero}) * (float)${scale})`;
};

/** Rounds halves to even, and saturates. */
const quantized: Formula = (emitter, x, scale, zero) => {
  const places = `rintf((float)${x} / (float)${scale})${zero === '' ? '' : ` + (float)${zero}`}`;
  return narrowed(emitter, places);
};

/** C expression of the scale's index for element i; undefined if the scales broadcast by numpy's rules. */
function scaleIndex(emitter: Emitter, input: Value, scale: Value): string | undefined {
  const { shape } = input;
  if (scale.elements === 1 && scale.shape.length <= 1) return undefined;
  const axis = axisOf(emitter.attribute('axis', 1), shape.length);
  if (scale.shape.length === 1) {
    if (axis === shape.length - 1) return undefined;
    if (scale.elements !== shape[axis]) throw new Unsupported(`${scale.elements} scales for ${shape[axis]} places`);
    return coordinates('i', shape)[axis]!;
  }
  const block = emitter.attribute('block_size', 0);
  if (scale.shape.length !== shape.length || block < 1) {
    throw new Unsupported(`its scales [${scale.shape.join(',')}] do not fit [${shape.join(',')}]`);
  }
  const places = coordinates('i', shape);
  places[axis] = `(${places[axis]} / ${block}u)`;
  return weightedSum(places, stridesOf(scale.shape));
}

const linear = <Type extends KernelName>(type: Type, hint: string, formula: Formula): Operator<Type> => ({
  type,
  elementwise(emitter, [x = '', scale = '', zero = '']) {
    if (scaleIndex(emitter, emitter.required(0), emitter.required(1)) !== undefined) return undefined;
    return formula(emitter, x, scale, zero);
  },
  emit(emitter) {
    const [given, scale, zero] = [emitter.required(0), emitter.required(1), emitter.input(2)];
    const output = requiredOutput(emitter);
    const index = scaleIndex(emitter, given, scale) ?? '0';
    const tensors = { input: given, scales: scale, zeros: zero, output: written(output) };
    forEachElement(emitter, hint, output.elements, tensors, (of) => {
      const text = formula(emitter, of.input.at('i'), of.scales.at('at'), of.zeros?.at('at') ?? '');
      return [`const u64 at = ${index};`, of.output.set('i', `(${of.output.computed})(${text})`)];
    });
  },
});

export const linearOperators = (['', 'com.microsoft.'] as const).flatMap((domain) => [
  linear(`${domain}DequantizeLinear`, 'dequantize_linear', dequantized),
  linear(`${domain}QuantizeLinear`, 'quantize_linear', quantized),
]);
