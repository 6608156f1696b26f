/** Fourier transforms. */
import { ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import { axisFromFront } from '../../onnx/index.ts';
import { elementCount, type DataType } from '../../tensor/index.ts';
import { floats, knownNumbers, Unsupported, type Term, type Write, type Writer } from '../writing.ts';

const unfollowed: OperatorFacts = { ...ordinary, shapes: 'run', rows: 'unknown' };

/** Limit for the elements of a matrix. With longer signals a fast transform on the CPU is faster. */
const matrixMax = 2 ** 24;

interface Turns {
  /** Steps around the circle. */
  readonly length: number;
  readonly inverse: boolean;
  /** Of the signal: elements along the axis, and 2 if they are complex. */
  readonly terms: number;
  readonly width: number;
  /** Of the result: 1 if it is real. */
  readonly results: number;
  readonly parts: number;
  /** How often each element counts. */
  readonly weightOf: (term: number) => number;
  readonly datatype: DataType;
}

/** The matrix [terms x width, results x parts]. Real and imaginary parts are a quarter of a turn apart. */
function matrixOf(writer: Writer, turns: Turns): Term {
  const { length, inverse, terms, width, results, parts, weightOf, datatype } = turns;
  const shape = [terms, width, results, parts];
  if (elementCount(shape) > matrixMax)
    throw new Unsupported(`${terms} elements and ${results} frequencies are too many`);
  const number = (value: number): Term => writer.number('FP64', value);
  const times = (a: Term, b: Term): Term => writer.map('Mul', [a, b]);
  const places = times(writer.counted(0, shape), writer.counted(2, shape));
  const turn = writer.cast(writer.map('Mod', [places, writer.number('INT64', length)]), 'FP64');
  const quarters = writer.map('Sub', [writer.counted(1, shape, 'FP64'), writer.counted(3, shape, 'FP64')]);
  const angle = writer.map('Add', [
    times(turn, number(((inverse ? 2 : -2) * Math.PI) / length)),
    times(quarters, number(Math.PI / 2)),
  ]);
  const weights = Array.from({ length: terms }, (_, term) => weightOf(term) / (inverse ? length : 1));
  const weighed = times(writer.map('Cos', [angle]), writer.numbers('FP64', [terms, 1, 1, 1], weights));
  return writer.viewed(writer.cast(weighed, datatype), [terms * width, results * parts]);
}

/** The last two axes of a signal, elements and their parts, become frequencies and theirs. */
function transformed(writer: Writer, signal: Term, turns: Omit<Turns, 'terms' | 'width' | 'datatype'>): Term {
  const [terms, width] = signal.shape.slice(-2) as [number, number];
  const datatype = signal.datatype === 'FP64' ? 'FP64' : 'FP32';
  const rows = elementCount(signal.shape.slice(0, -2));
  const matrix = matrixOf(writer, { ...turns, terms, width, datatype });
  const factors = [writer.viewed(writer.cast(signal, datatype), [rows, terms * width]), matrix];
  const result = writer.made('MatMul', factors, { datatype, shape: [rows, matrix.shape[1]!] });
  const shaped = writer.viewed(result, [...signal.shape.slice(0, -2), turns.results, turns.parts]);
  return writer.cast(shaped, signal.datatype);
}

const dft: Write = (writer) => {
  const x = writer.required(0, floats);
  const { shape: made } = writer.output;
  const rank = x.shape.length;
  const [named] = writer.opset >= 20 ? (knownNumbers(writer, 2, 'axis') ?? [-2]) : [writer.attribute('axis', 1)];
  const axis = axisFromFront(named ?? -2, rank);
  if (axis === rank - 1) throw new Unsupported('its axis is the one of real and imaginary parts');
  const [inverse, onesided] = [writer.attribute('inverse', 0) === 1, writer.attribute('onesided', 0) === 1];
  const [size, parts] = [x.shape[axis]!, made.at(-1)!];
  // Half of the frequencies are given. The other half mirrors them, and the result is real.
  const isMirrored = inverse && onesided && parts === 1;
  const [known] = knownNumbers(writer, 1, 'length') ?? [];
  const length = known ?? (isMirrored ? 2 * (size - 1) : size);
  const weightOf = (term: number): number => {
    if (isMirrored) return 2 * term > length ? 0 : term === 0 || 2 * term === length ? 1 : 2;
    return term < length ? 1 : 0;
  };
  const order = Array.from(made.keys());
  const axisLast = [...order.filter((each) => each !== axis && each !== rank - 1), axis, rank - 1];
  const turns = { length, inverse, results: made[axis]!, parts, weightOf };
  const result = transformed(writer, writer.permuted(x, axisLast), turns);
  writer.give(
    writer.permuted(
      result,
      order.map((each) => axisLast.indexOf(each)),
    ),
  );
};

/** Frames of the signal are gathered, and weighed by the window. */
const stft: Write = (writer) => {
  const x = writer.required(0, floats);
  const [step] = knownNumbers(writer, 1, 'frame step') ?? [];
  const window = writer.input(2);
  const [named] = knownNumbers(writer, 3, 'frame length') ?? [];
  const length = named ?? window?.shape[0];
  if (step === undefined || length === undefined) throw new Unsupported('it does not say how long its frames are');
  const [items, samples, width = 1] = x.shape as [number, number, number?];
  // ONNX Runtime would read this window as complex numbers.
  if (width === 2 && window !== undefined) throw new Unsupported('its window is over a complex signal');
  const [, frames, results, parts] = writer.output.shape as [number, number, number, number];
  const starts = writer.map('Mul', [writer.counted(0, [frames, length]), writer.number('INT64', step)]);
  const places = writer.map('Add', [starts, writer.counted(1, [frames, length])]);
  const shape = [items, frames, length, width];
  const signal = writer.viewed(x, [items, samples, width]);
  const framed = writer.made('Gather', [signal, places], { datatype: x.datatype, shape }, { axis: 1 });
  const weighed = window === undefined ? framed : writer.map('Mul', [framed, writer.viewed(window, [length, 1])]);
  const turns = { length, inverse: false, results, parts, weightOf: () => 1 };
  writer.give(transformed(writer, weighed, turns));
};

export const signal = {
  DFT: { ...unfollowed, arguments: sizedFrom(1), write: dft },
  STFT: { ...unfollowed, arguments: sizedFrom(1, 2), write: stft },
} satisfies Record<string, OperatorFacts>;
