/** Inputs of a function as far as its metadata leaves them open. */
import type { InputShapes } from '../../gpu/index.ts';
import { elementBytes, packBytes, type Tensor } from '../../tensor/index.ts';
import type { ModelMetadata } from '../types.ts';

/** The shapes that a function is compiled and measured for; others are compiled when they come. */
export function shapesOf({ inputs }: ModelMetadata): InputShapes {
  return Object.fromEntries(
    inputs.map(({ name, shape, dimensionNames }) => [
      name,
      shape.map((size, axis) => {
        if (size !== -1) return size;
        if (axis === 0) return 1;
        const dimension = dimensionNames[axis];
        return dimension !== undefined && /seq|token|length/i.test(dimension) ? 128 : shape.length === 4 ? 224 : 1;
      }),
    ]),
  );
}

/** Zeros in these shapes, as texts where texts are asked for. */
export function emptyInputs(metadata: ModelMetadata): Tensor[] {
  const shapes = shapesOf(metadata);
  return metadata.inputs.map(({ name, datatype }) => {
    const shape = [...shapes[name]!];
    const elements = shape.reduce((product, size) => product * size, 1);
    const data =
      datatype === 'BYTES'
        ? packBytes(Array.from({ length: elements }, () => '0'))
        : new Uint8Array(elements * elementBytes[datatype]);
    return { name, datatype, shape, data };
  });
}

/** As the model names its outputs, one after the other. */
export function inOrder(outputs: readonly Tensor[], metadata: ModelMetadata | undefined): readonly Tensor[] {
  if (metadata === undefined) return outputs;
  const byName = new Map(outputs.map((output) => [output.name, output]));
  return metadata.outputs.flatMap(({ name }) => byName.get(name) ?? []);
}
