/** Resize and Upsample: nearest, linear and cubic, along any axes, with and without smoothing (antialias). */
import type { DataType } from '../../../tensor/index.ts';
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';
import { floatLiteral, floats, requireDatatype } from '../common/element.ts';
import { axisOf, coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, findAttribute, knownNumbers, requiredOutput } from '../common/inputs.ts';
import { forEachElement, written, asBits } from '../common/elements.ts';

/** One axis that changes its size: `scale` times as large. */
interface Axis {
  readonly axis: number;
  readonly input: number;
  readonly output: number;
  readonly scale: number;
  /** Where a region of interest begins and ends, as shares of the axis. */
  readonly from: number;
  readonly to: number;
}

/** C expression of where output coordinate `at` lies in the input, by the ONNX operator specification, opset 19; floats, as in ONNX Runtime. */
function inputCoordinate(mode: string, at: string, { input, output, scale, from, to }: Axis): string {
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
    case 'tf_crop_and_resize':
      return output > 1
        ? `${floatLiteral(from * (input - 1))} + ${at} * ${floatLiteral(((to - from) * (input - 1)) / (output - 1))}`
        : floatLiteral(0.5 * (from + to) * (input - 1));
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

function changedAxes(emitter: Emitter, input: Value, output: Value, crops: boolean): Axis[] {
  const axes = emitter.attribute<readonly number[]>('axes', []).map((axis) => axisOf(axis, input.shape.length));
  const named = axes.length > 0 ? axes : input.shape.map((_, axis) => axis);
  const scales = input.shape.map((size, axis) => output.shape[axis]! / size);
  // Opset 10 has no region of interest between the input and the scales; before opset 9 the scales are an attribute.
  const given =
    emitter.opset < 9
      ? (findAttribute(emitter, 'scales')?.floats ?? [])
      : (knownNumbers(emitter, emitter.opset < 11 ? 1 : 2, 'scales') ?? []);
  for (const [index, scale] of given.entries()) scales[named[index]!] = scale;
  const policy = emitter.attribute<string>('keep_aspect_ratio_policy', 'stretch');
  const sizes = policy === 'stretch' || given.length > 0 ? undefined : knownNumbers(emitter, 3, 'sizes');
  if (sizes !== undefined) {
    const wanted = sizes.map((size, index) => size / input.shape[named[index]!]!);
    const scale = policy === 'not_larger' ? Math.min(...wanted) : Math.max(...wanted);
    for (const axis of named) scales[axis] = scale;
  }
  const region = crops ? (knownNumbers(emitter, 1, 'region of interest') ?? []) : [];
  // ONNX Runtime takes a region with as many ends as the input has axes for that of all, whichever are named.
  const ofAll = region.length === 2 * input.shape.length;
  const bounded = ofAll ? input.shape.map((_, axis) => axis) : named;
  return input.shape.flatMap((size, axis) => {
    const scale = scales[axis]!;
    const place = bounded.indexOf(axis);
    const from = place < 0 ? 0 : (region[place] ?? 0);
    const to = place < 0 ? 1 : (region[place + bounded.length] ?? 1);
    // To ONNX Runtime such an axis is as it was, whatever is named of it.
    return scale === 1 && size === output.shape[axis]
      ? []
      : [{ axis, input: size, output: output.shape[axis]!, scale, from, to }];
  });
}

type Mode = 'nearest' | 'linear' | 'cubic';

function modeOf(emitter: Emitter): Mode {
  const mode = emitter.attribute<string>('mode', 'nearest');
  if (mode === 'bilinear' || mode === 'linear') return 'linear';
  if (mode !== 'nearest' && mode !== 'cubic') throw new Unsupported(`its mode '${mode}' is not covered`);
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

/**
 * Statements that weigh the elements along an axis: a filter around the place, as wide as one element of the output where it smooths.
 * What lies beyond an end counts for the end, or for nothing.
 */
function weighed(
  emitter: Emitter,
  mode: Mode,
  { axis, input, scale }: Axis,
): { readonly lines: string[]; readonly taps: number } {
  const smooths = emitter.attribute('antialias', 0) === 1 && scale < 1;
  const narrow = smooths ? scale : 1;
  const support = (mode === 'cubic' ? 2 : 1) / narrow;
  const taps = Math.ceil(2 * support) + 2;
  const a = floatLiteral(emitter.attribute('cubic_coeff_a', -0.75));
  const filter =
    mode === 'linear'
      ? 'd < 1.0f ? 1.0f - d : 0.0f'
      : `d <= 1.0f ? ((${a} + 2.0f) * d - (${a} + 3.0f)) * d * d + 1.0f : d < 2.0f ? ((${a} * d - 5.0f * ${a}) * d + 8.0f * ${a}) * d - 4.0f * ${a} : 0.0f`;
  const excluded = emitter.attribute('exclude_outside', 0) === 1;
  return {
    taps,
    lines: [
      `const float center${axis} = x${axis} + 0.5f;`,
      `const int first${axis} = (int)floorf(center${axis} - ${floatLiteral(support)} + 0.5f);`,
      `const int count${axis} = (int)floorf(center${axis} + ${floatLiteral(support)} + 0.5f) - first${axis};`,
      `float weights${axis}[${taps}];`,
      `float total${axis} = 0;`,
      `for (int tap = 0; tap < count${axis}; tap++) {`,
      `  const float d = fabsf((first${axis} + tap - center${axis} + 0.5f) * ${floatLiteral(narrow)});`,
      `  const int place = first${axis} + tap;`,
      `  weights${axis}[tap] = ${excluded ? `place < 0 || place >= ${input} ? 0.0f : ` : ''}(${filter});`,
      `  total${axis} += weights${axis}[tap];`,
      '}',
    ],
  };
}

const wholeNumbers: readonly DataType[] = ['INT8', 'UINT8', 'INT32'];

/** @param old the operator that was there before, which knows one transformation */
function emitResize(emitter: Emitter, old: boolean): void {
  const given = emitter.required(0);
  const mode = modeOf(emitter);
  if (mode !== 'nearest') requireDatatype(given, mode === 'linear' ? [...floats, ...wholeNumbers] : floats);
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const early = old || emitter.opset < 11;
  const transformation = early
    ? 'asymmetric'
    : emitter.attribute<string>('coordinate_transformation_mode', 'half_pixel');
  const nearestMode = early ? 'floor' : emitter.attribute<string>('nearest_mode', 'round_prefer_floor');
  const rounding = roundings[nearestMode];
  if (rounding === undefined) throw new Unsupported(`its nearest mode '${nearestMode}' is not covered`);
  const crops = transformation === 'tf_crop_and_resize';
  const axes = changedAxes(emitter, given, output, crops);
  const smooths = emitter.attribute('antialias', 0) === 1 && axes.some(({ scale }) => scale < 1);
  if (mode === 'linear' && !smooths && axes.length > 3) {
    throw new Unsupported(`it interpolates along ${axes.length} axes`);
  }
  const places = coordinates('i', output.shape);
  const lines = axes.map(
    (one) => `const float x${one.axis} = ${inputCoordinate(transformation, `(float)${places[one.axis]}`, one)};`,
  );
  const isMoved = mode === 'nearest' && !crops;
  const input = isMoved ? asDeclared(emitter, given) : given;
  const strides = stridesOf(input.shape);
  const exact = input.datatype === 'FP64' ? 'double' : 'float';
  const tensors = isMoved
    ? { input: asBits(input), output: asBits(written(output)) }
    : { input, output: written(output) };
  forEachElement(emitter, 'resize', output.elements, tensors, (of) => {
    if (crops) {
      const beyond = axes.map(({ axis, input: size }) => `x${axis} < 0 || x${axis} > ${size - 1}`);
      const value = floatLiteral(emitter.attribute('extrapolation_value', 0));
      if (beyond.length > 0) lines.push(`if (${beyond.join(' || ')}) {`, of.output.set('i', value), 'return;', '}');
    }
    if (mode === 'nearest') {
      const moved = [...places];
      for (const { axis, input: size } of axes) {
        lines.push(`const int n${axis} = (int)${rounding(`x${axis}`)};`);
        moved[axis] = clamped(`n${axis}`, size);
      }
      lines.push(of.output.set('i', of.input.at(weightedSum(moved, strides))));
    } else if (mode === 'linear' && !smooths) {
      for (const { axis, input: size } of axes) {
        lines.push(
          `const float inside${axis} = ${clamped(`x${axis}`, size)};`,
          `const int low${axis} = (int)inside${axis};`,
          `const int high${axis} = low${axis} < ${size - 1} ? low${axis} + 1 : ${size - 1};`,
          `const ${exact} share${axis} = inside${axis} - low${axis};`,
        );
      }
      const sum = interpolated(axes, places, strides, of.input.at);
      lines.push(of.output.set('i', `(${exact})(${sum})`));
    } else {
      if (wholeNumbers.includes(input.datatype)) throw new Unsupported(`it smooths ${input.datatype} (antialias)`);
      const moved = [...places];
      const factors: string[] = [];
      for (const axis of axes) lines.push(...weighed(emitter, mode, axis).lines);
      lines.push(`${exact} sum = 0;`);
      for (const { axis, input: size } of axes) {
        lines.push(
          `for (int tap${axis} = 0; tap${axis} < count${axis}; tap${axis}++) {`,
          `const int reached${axis} = first${axis} + tap${axis};`,
          `const int place${axis} = ${clamped(`reached${axis}`, size)};`,
        );
        moved[axis] = `place${axis}`;
        factors.push(`weights${axis}[tap${axis}] / total${axis}`);
      }
      lines.push(`sum += ${[...factors, of.input.at(weightedSum(moved, strides))].join(' * ')};`);
      lines.push(...axes.map(() => '}'), of.output.set('i', 'sum'));
    }
    return lines;
  });
}

export const resizeOperators: readonly Operator[] = [
  { type: 'Resize', emit: (emitter) => emitResize(emitter, false) },
  { type: 'Upsample', emit: (emitter) => emitResize(emitter, true) },
];
