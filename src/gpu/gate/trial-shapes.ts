/** Shapes for a function's first program, before a call has shown any. The host and `turntable doctor` use the same. */
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
 * Lengths of an open sequence, in the order of the trials. A model refuses lengths above its number of positions;
 * CLIP's text models have 77.
 */
const sequenceLengths = [128, 77, 64, 32, 16, 8, 1];

/** Size of any other open dimension. */
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

/** Shapes in the order of the trials. The function takes the first for which ONNX Runtime accepts the graph. */
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
