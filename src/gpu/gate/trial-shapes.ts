/**
 * Shapes to make a function's first program for, before a call has shown any. The host and `turntable doctor` use the
 * same.
 */
import type { InputShapes } from '../program/types.ts';

export interface OpenInput {
  readonly name: string;
  /** -1 where the size varies. */
  readonly shape: readonly number[];
  readonly dimensionNames: readonly (string | undefined)[];
}

const imageSize = 224;
const isSequence = /seq|token|length|position|context/i;

/**
 * Lengths of an open sequence, in the order in which they are tried: 77 is what CLIP's text models are limited to, and
 * a model of fewer positions than that refuses every length above its own.
 */
const sequenceLengths = [128, 77, 64, 32, 16, 8, 1];

/** Of any other open dimension: a short series. */
const otherSize = 16;

function shapesFor(inputs: readonly OpenInput[], sequence: number, other: number): InputShapes {
  return inputs.map(({ name, shape, dimensionNames }) => ({
    name,
    shape: shape.map((size, axis) => {
      if (size >= 0) return size;
      const dimension = dimensionNames[axis] ?? '';
      if (axis === 0 || /batch/i.test(dimension)) return 1;
      if (isSequence.test(dimension)) return sequence;
      return shape.length === 4 ? imageSize : other;
    }),
  }));
}

/** In the order in which to try them; the first for which ONNX Runtime accepts the graph is the function's. */
export function trialShapes(inputs: readonly OpenInput[]): readonly [InputShapes, ...InputShapes[]] {
  const [first = 128, ...others] = sequenceLengths;
  const all = [
    shapesFor(inputs, first, otherSize),
    ...others.map((length) => shapesFor(inputs, length, otherSize)),
    shapesFor(inputs, 1, 1),
  ];
  const different = new Map(all.map((shapes) => [JSON.stringify(shapes), shapes]));
  const [wanted, ...alternatives] = different.values();
  return [wanted!, ...alternatives];
}
