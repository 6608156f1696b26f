/**
 * DFT and STFT as plain sums over the signal, a thread for each output. A first launch makes a table of sines and
 * cosines, which at the lengths of models is read from the cache.
 */
import { accumulatorOf, floats } from '../common/element.ts';
import { axisOf, coordinates, product } from '../common/indexing.ts';
import { asDeclared, knownNumbers, requiredOutput, scratchValue } from '../common/inputs.ts';
import { forEachElement, written, type Use } from '../common/elements.ts';
import { type Emitter, type Kernels, Unsupported, type Value } from '../types.ts';

/** A table [length, 2] of cos and sin of `length` steps around the circle. */
function turns(emitter: Emitter, length: number, kept: 'FP32' | 'FP64'): Use {
  const table = scratchValue(emitter, kept, [length, 2]);
  forEachElement(emitter, 'fourier_turns', length, { table: written(table) }, (of) => [
    `const double angle = 6.283185307179586 * (double)i / ${length};`,
    of.table.set('2 * i', `(${of.table.computed})cos(angle)`),
    of.table.set('2 * i + 1', `(${of.table.computed})sin(angle)`),
  ]);
  return table;
}

interface Sum {
  readonly hint: string;
  readonly input: Value;
  /** Terms of a sum; those from `present` (a C expression) on are 0. */
  readonly length: number;
  readonly present: string;
  /** C statements that declare `from`, where the signal begins, and `k`, the frequency. */
  readonly place: readonly string[];
  readonly step: number;
  readonly complex: boolean;
  readonly inverse: boolean;
  /** The input has half of the frequencies, the other half mirrors it, and the result is real. */
  readonly mirrored: boolean;
  readonly window?: Value | undefined;
}

function emitSum(emitter: Emitter, output: Value, sum: Sum): void {
  const { hint, input, length, present, place, step, complex, inverse, mirrored, window } = sum;
  if (output.elements === 0) return;
  const type = accumulatorOf(input.datatype);
  const table = turns(emitter, length, type === 'double' ? 'FP64' : 'FP32');
  const width = complex ? 2 : 1;
  const scale = inverse ? ` / ${length}` : '';
  const count = mirrored ? output.elements : output.elements / 2;
  forEachElement(emitter, hint, count, { input, table, window, output: written(output) }, (of) => {
    const weight = of.window === undefined ? '' : ` * ${of.window.at('n')}`;
    const read = (part: number): string => `${of.input.at(`at + ${part}`)}${weight}`;
    return [
      ...place,
      `${type} real = 0, imaginary = 0;`,
      'u32 turn = 0;',
      `for (u32 n = 0; n < ${mirrored ? `${length}u` : present}; n++) {`,
      mirrored ? `  const u32 m = n <= ${Math.floor(length / 2)}u ? n : ${length}u - n;` : '  const u32 m = n;',
      ...(mirrored ? [`  if (m < ${present}) {`] : ['  {']),
      `    const u64 at = from + (u64)m * ${step * width}u;`,
      `    const ${type} a = ${read(0)};`,
      complex ? `    const ${type} b = ${mirrored ? '(m == n ? 1 : -1) * ' : ''}(${read(1)});` : '',
      `    const ${type} c = table[2 * turn], s = ${inverse ? '' : '-'}table[2 * turn + 1];`,
      complex ? '    real += a * c - b * s;' : '    real += a * c;',
      mirrored ? '' : complex ? '    imaginary += a * s + b * c;' : '    imaginary += a * s;',
      '  }',
      `  turn += k;`,
      `  if (turn >= ${length}u) turn -= ${length}u;`,
      '}',
      '(void)imaginary;',
      of.output.set(mirrored ? 'i' : '2 * i', `real${scale}`),
      mirrored ? '' : of.output.set('2 * i + 1', `imaginary${scale}`),
    ];
  });
}

const dft = {
  type: 'DFT',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const output = requiredOutput(emitter);
    const rank = given.shape.length;
    const [named] = emitter.opset >= 20 ? (knownNumbers(emitter, 2, 'axis') ?? [-2]) : [emitter.attribute('axis', 1)];
    const axis = axisOf(named ?? -2, rank);
    if (axis === rank - 1) throw new Unsupported('its axis is the one of real and imaginary parts');
    const [inverse, onesided] = [emitter.attribute('inverse', 0) === 1, emitter.attribute('onesided', 0) === 1];
    const mirrored = inverse && onesided && output.shape.at(-1) === 1;
    const input = asDeclared(emitter, given);
    const size = input.shape[axis]!;
    const [known] = knownNumbers(emitter, 1, 'length') ?? [];
    const length = known ?? (mirrored ? 2 * (size - 1) : size);
    const width = input.shape.at(-1)!;
    const inner = product(input.shape.slice(axis + 1, -1));
    const results = output.shape[axis]!;
    const [outer, k, within] = coordinates('i', [product(output.shape.slice(0, axis)), results, inner]);
    emitSum(emitter, output, {
      hint: 'dft',
      input,
      length,
      present: `${Math.min(length, size)}u`,
      place: [
        `const u32 k = (u32)(${k}) % ${length}u;`,
        `const u64 from = ((u64)(${outer}) * ${size * inner} + (${within})) * ${width};`,
      ],
      step: inner,
      complex: width === 2,
      inverse,
      mirrored,
    });
  },
} satisfies Kernels;

const stft = {
  type: 'STFT',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const output = requiredOutput(emitter);
    const [step] = knownNumbers(emitter, 1, 'frame step') ?? [];
    const window = emitter.input(2);
    const [named] = knownNumbers(emitter, 3, 'frame length') ?? [];
    const length = named ?? window?.elements;
    if (step === undefined || length === undefined) throw new Unsupported('it does not say how long its frames are');
    const input = asDeclared(emitter, given);
    const width = input.shape.length === 3 ? input.shape[2]! : 1;
    // ONNX Runtime would read this window as complex numbers.
    if (width === 2 && window !== undefined) throw new Unsupported('its window is over a complex signal');
    const signal = input.shape[1]!;
    const [item, frame, k] = coordinates('i', output.shape.slice(0, 3));
    emitSum(emitter, output, {
      hint: 'stft',
      input,
      length,
      present: `${length}u`,
      place: [
        `const u32 k = (u32)(${k});`,
        `const u64 from = ((u64)(${item}) * ${signal} + (u64)(${frame}) * ${step}) * ${width};`,
      ],
      step: 1,
      complex: width === 2,
      inverse: false,
      mirrored: false,
      window,
    });
  },
} satisfies Kernels;

export const signalOperators = [dft, stft] as const satisfies readonly Kernels[];
