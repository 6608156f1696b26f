/** Col2Im and BitCast. */
import { eachAxis, floats, knownNumbers, Unsupported } from '../../../operators/index.ts';
import { elementCount } from '../../../tensor/index.ts';
import { coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { forEachElement, written } from '../common/elements.ts';
import type { Kernels } from '../types.ts';
import { emitNoView } from '../views.ts';

/** Each element of the image is the sum of the block elements at its place. */
const col2im = {
  type: 'Col2Im',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const block = knownNumbers(emitter, 2, 'block shape') ?? [];
    const output = requiredOutput(emitter);
    const sizes = output.shape.slice(2);
    const axes = sizes.length;
    const [dilations, strides] = [eachAxis(emitter, 'dilations', axes, 1), eachAxis(emitter, 'strides', axes, 1)];
    const pads = eachAxis(emitter, 'pads', 2 * axes, 0);
    // With more than 2 axes ONNX Runtime computes an element's place in its block from the dilated block's size.
    const isMisplaced = (axis: number): boolean =>
      dilations[axis]! > 1 && block[axis]! > 1 && [output.shape[1]!, ...block.slice(0, axis)].some((size) => size > 1);
    if (axes > 2 && sizes.some((_, axis) => isMisplaced(axis)))
      throw new Unsupported(`dilated blocks along ${axes} axes, which ONNX Runtime misplaces`);
    const counts = sizes.map((size, axis) => {
      const span = dilations[axis]! * (block[axis]! - 1) + 1;
      return Math.floor((size + pads[axis]! + pads[axis + axes]! - span) / strides[axis]!) + 1;
    });
    const [image, channel, ...places] = coordinates('i', output.shape);
    const taps = sizes.map((_, axis) => `t${axis}`);
    const windows = sizes.map((_, axis) => `w${axis}`);
    const row = `(${channel}) * ${elementCount(block)} + ${weightedSum(taps, stridesOf(block))}`;
    const blocks = elementCount(counts);
    forEachElement(emitter, 'col2im', output.elements, { input: given, output: written(output) }, (of) => [
      `${of.output.computed} sum = 0;`,
      ...sizes.flatMap((_, axis) => [
        `for (int t${axis} = 0; t${axis} < ${block[axis]}; t${axis}++) {`,
        `const int r${axis} = (int)(${places[axis]}) + ${pads[axis]} - t${axis} * ${dilations[axis]};`,
        `if (r${axis} < 0 || r${axis} % ${strides[axis]} != 0) continue;`,
        `const int w${axis} = r${axis} / ${strides[axis]};`,
        `if (w${axis} >= ${counts[axis]}) continue;`,
      ]),
      `const i64 from = ((i64)(${image}) * ${output.shape[1]! * elementCount(block)} + ${row}) * ${blocks} + ${weightedSum(windows, stridesOf(counts))};`,
      `sum += ${of.input.at('from')};`,
      ...sizes.map(() => '}'),
      of.output.set('i', 'sum'),
    ]);
  },
} satisfies Kernels;

/** The same bytes as another type of the same width. */
const bitCast = {
  type: 'BitCast',
  viewOf: (emitter) => {
    const { datatype, storedType } = emitter.required(0);
    if (storedType !== datatype) throw new Unsupported('its input is a weight in another type');
    return 0;
  },
  emit: emitNoView,
} satisfies Kernels;

export const sequenceOperators = [col2im, bitCast] as const satisfies readonly Kernels[];
