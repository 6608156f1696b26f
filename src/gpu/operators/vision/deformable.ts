/**
 * DeformConv: a convolution with taps that a tensor of offsets moves. The matrix of windows is computed first, then
 * multiplied.
 */
import { floats } from '../common/element.ts';
import { forEachElement, written } from '../common/elements.ts';
import { coordinates, product } from '../common/indexing.ts';
import { requiredOutput, scratchValue } from '../common/inputs.ts';
import { emitFinish, emitProducts } from '../dense/convolution.ts';
import { convolutionOf } from '../dense/window.ts';
import { type Kernels, Unsupported } from '../types.ts';

export const deformConv = {
  type: 'DeformConv',
  emit(emitter) {
    const [given, weight, offset] = [emitter.required(0, floats), emitter.required(1), emitter.required(2)];
    const [bias, mask] = [emitter.input(3), emitter.input(4)];
    if (given.shape.length !== 4) throw new Unsupported(`'${given.name}' has ${given.shape.length} dimensions, not 4`);
    const output = requiredOutput(emitter);
    const convolution = convolutionOf(emitter, given, weight, output);
    if (output.elements === 0) return;
    const { images, groups, inputChannels, kernel, strides, dilations, padsBegin } = convolution;
    const [height, width] = convolution.inputSizes as [number, number];
    const [rows, columns] = convolution.outputSizes as [number, number];
    const [taps, channels] = [product(kernel), groups * inputChannels];
    const sets = emitter.attribute('offset_group', 1);
    const windows = scratchValue(emitter, given.datatype, [images, channels, taps, rows, columns]);
    const [image, channel, tap, row, column] = coordinates('i', windows.shape);
    const place = `(u64)(row * ${columns} + column)`;
    const at = `((u64)image * ${sets} + channel / ${channels / sets}) * ${taps} + tap`;
    const tensors = { input: given, offsets: offset, mask, output: written(windows) };
    forEachElement(emitter, 'deformed_windows', windows.elements, tensors, (of) => {
      const corner = (y: string, x: string): string =>
        `(${y} >= 0 && ${y} < ${height} && ${x} >= 0 && ${x} < ${width} ? ${of.input.load(`plane[${y} * ${width} + ${x}]`)} : 0)`;
      const moved = (which: string): string => of.offsets.at(`(${which}) * ${rows * columns} + ${place}`);
      return [
        `const int image = (int)(${image}), channel = (int)(${channel}), tap = (int)(${tap}), row = (int)(${row}), column = (int)(${column});`,
        `const float y = row * ${strides[0]} - ${padsBegin[0]} + tap / ${kernel[1]} * ${dilations[0]} + (float)${moved(`(${at}) * 2`)};`,
        `const float x = column * ${strides[1]} - ${padsBegin[1]} + tap % ${kernel[1]} * ${dilations[1]} + (float)${moved(`(${at}) * 2 + 1`)};`,
        `const auto *plane = input + ((u64)image * ${channels} + channel) * ${height * width};`,
        'const int top = (int)floorf(y), left = (int)floorf(x);',
        'const int bottom = top + 1, right = left + 1;',
        'const float fy = y - top, fx = x - left;',
        `${of.output.computed} value = 0;`,
        `if (y > -1.0f && y < ${height} && x > -1.0f && x < ${width}) {`,
        `  value = (1.0f - fy) * ((1.0f - fx) * ${corner('top', 'left')} + fx * ${corner('top', 'right')}) + fy * ((1.0f - fx) * ${corner('bottom', 'left')} + fx * ${corner('bottom', 'right')});`,
        '}',
        of.mask === undefined ? '' : `value *= ${of.mask.at(`(${at}) * ${rows * columns} + ${place}`)};`,
        of.output.set('i', 'value'),
      ];
    });
    emitProducts(emitter, convolution, images, weight, windows, output);
    if (bias !== undefined) emitFinish(emitter, { kind: 'none' }, bias, output);
  },
} satisfies Kernels;
