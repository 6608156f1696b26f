/** Resize: nearest and linear along any axes, by every coordinate transformation but 'tf_crop_and_resize'. */
import { elementBytes } from '../../../tensor/index.ts';
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';
import { accumulatorOf, elementOf, floatLiteral, floats, requireDatatype } from '../common/element.ts';
import { axisOf, coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, knownNumbers, requiredOutput } from '../common/inputs.ts';
import { forEachIndex, wordType } from '../common/launching.ts';

/** One axis that changes its size: `scale` times as large. */
interface Axis {
  readonly axis: number;
  readonly input: number;
  readonly output: number;
  readonly scale: number;
}

/** C expression of where output coordinate `at` lies in the input, by the ONNX operator specification, opset 19; floats, as in ONNX Runtime. */
function inputCoordinate(mode: string, at: string, { input, output, scale }: Axis): string {
  const halfPixel = `(${at} + 0.5f) / ${floatLiteral(scale)} - 0.5f`;
  switch (mode) {
    case 'half_pixel':
      return halfPixel;
    case 'half_pixel_symmetric': {
      const adjustment = output / (scale * input);
      return `${floatLiteral((input / 2) * (1 - adjustment))} + ${halfPixel}`;
    }
    case 'pytorch_half_pixel':
      return output > 1 ? halfPixel : '0.0f';
    case 'align_corners':
      return output === 1 ? '0.0f' : `${at} * ${floatLiteral(input - 1)} / ${floatLiteral(output - 1)}`;
    case 'asymmetric':
      return `${at} / ${floatLiteral(scale)}`;
    default:
      throw new Unsupported(`its coordinate transformation '${mode}' is not covered`);
  }
}

const roundings: Readonly<Record<string, (x: string) => string>> = {
  round_prefer_floor: (x) => `ceilf(${x} - 0.5f)`,
  round_prefer_ceil: (x) => `floorf(${x} + 0.5f)`,
  floor: (x) => `floorf(${x})`,
  ceil: (x) => `ceilf(${x})`,
};

const clamped = (x: string, size: number): string => `(${x} < 0 ? 0 : ${x} > ${size - 1} ? ${size - 1} : ${x})`;

function changedAxes(emitter: Emitter, input: Value, output: Value): Axis[] {
  const axes = emitter.attribute<readonly number[]>('axes', []).map((axis) => axisOf(axis, input.shape.length));
  const named = axes.length > 0 ? axes : input.shape.map((_, axis) => axis);
  const scales = input.shape.map((size, axis) => output.shape[axis]! / size);
  // Opset 10 has no region of interest between the input and the scales.
  const given = knownNumbers(emitter, emitter.opset < 11 ? 1 : 2, 'scales') ?? [];
  for (const [index, scale] of given.entries()) scales[named[index]!] = scale;
  return input.shape.flatMap((size, axis) => {
    const scale = scales[axis]!;
    return scale === 1 && size === output.shape[axis]
      ? []
      : [{ axis, input: size, output: output.shape[axis]!, scale }];
  });
}

function requireCovered(emitter: Emitter): 'nearest' | 'linear' {
  const mode = emitter.attribute<string>('mode', 'nearest');
  if (mode !== 'nearest' && mode !== 'linear') throw new Unsupported(`its mode '${mode}' is not covered`);
  if (emitter.attribute('antialias', 0) === 1) throw new Unsupported('it smooths while it shrinks (antialias)');
  if (emitter.attribute<string>('keep_aspect_ratio_policy', 'stretch') !== 'stretch') {
    throw new Unsupported('it keeps the aspect ratio (keep_aspect_ratio_policy)');
  }
  return mode;
}

/** A weighted sum over the corners of the cell that an output lies in, along the axes that change. */
function interpolated(
  axes: readonly Axis[],
  places: readonly string[],
  strides: readonly number[],
  load: (at: string) => string,
): string {
  const corners = Array.from({ length: 2 ** axes.length }, (_, corner) => {
    const moved = [...places];
    const weights = axes.map(({ axis }, bit) => {
      const upper = ((corner >> bit) & 1) === 1;
      moved[axis] = `${upper ? 'high' : 'low'}${axis}`;
      return upper ? `share${axis}` : `(1 - share${axis})`;
    });
    return [...weights, load(weightedSum(moved, strides))].join(' * ');
  });
  return corners.join(' + ');
}

function emit(emitter: Emitter): void {
  const given = emitter.required(0);
  const mode = requireCovered(emitter);
  if (mode === 'linear') requireDatatype(given, floats);
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const transformation = emitter.attribute<string>(
    'coordinate_transformation_mode',
    emitter.opset < 11 ? 'asymmetric' : 'half_pixel',
  );
  const nearestMode = emitter.attribute<string>('nearest_mode', emitter.opset < 11 ? 'floor' : 'round_prefer_floor');
  const rounding = roundings[nearestMode];
  if (rounding === undefined) throw new Unsupported(`its nearest mode '${nearestMode}' is not covered`);
  const axes = changedAxes(emitter, given, output);
  if (mode === 'linear' && axes.length > 3) throw new Unsupported(`it interpolates along ${axes.length} axes`);
  const places = coordinates('i', output.shape);
  const lines = axes.map(
    (one) => `const float x${one.axis} = ${inputCoordinate(transformation, `(float)${places[one.axis]}`, one)};`,
  );
  const input = asDeclared(emitter, given);
  const strides = stridesOf(input.shape);
  const element = elementOf(input.datatype);
  const accumulator = accumulatorOf(input.datatype);
  if (mode === 'nearest') {
    const moved = [...places];
    for (const { axis, input: size } of axes) {
      lines.push(`const int n${axis} = (int)${rounding(`x${axis}`)};`);
      moved[axis] = clamped(`n${axis}`, size);
    }
    lines.push(`output[i] = input[${weightedSum(moved, strides)}];`);
  } else {
    for (const { axis, input: size } of axes) {
      lines.push(
        `const float inside${axis} = ${clamped(`x${axis}`, size)};`,
        `const int low${axis} = (int)inside${axis};`,
        `const int high${axis} = low${axis} < ${size - 1} ? low${axis} + 1 : ${size - 1};`,
        `const ${accumulator} share${axis} = inside${axis} - low${axis};`,
      );
    }
    const sum = interpolated(axes, places, strides, (at) => element.load(`input[${at}]`));
    lines.push(`output[i] = ${element.store(`(${accumulator})(${sum})`)};`);
  }
  const type = mode === 'linear' ? element.stored : wordType(elementBytes[input.datatype]);
  forEachIndex(
    emitter,
    'resize',
    output.elements,
    [
      { name: 'input', type, buffer: input.buffer },
      { name: 'output', type, buffer: output.buffer, access: 'write' },
    ],
    lines.join('\n'),
  );
}

export const resize: Operator = { type: 'Resize', emit };
