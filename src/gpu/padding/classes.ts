/** Batch sizes that share a program: 5 to 8, for example, run in the program for 8. */
import type { OpenInput } from '../../onnx/index.ts';
import { inputShape } from '../program/input-shapes.ts';
import type { InputShapes } from '../program/types.ts';

/**
 * The axis of the rows, by input: open axes with the name of the first that is called 'batch', or else with that of the
 * first open axis 0.
 */
function rowAxes(inputs: readonly OpenInput[]): ReadonlyMap<string, number> {
  const open = inputs.flatMap(({ name, shape, dimensionNames }) =>
    shape.flatMap((size, axis) => (size < 0 ? [{ input: name, axis, dimension: dimensionNames[axis] }] : [])),
  );
  const rows = open.find(({ dimension }) => /batch/i.test(dimension ?? '')) ?? open.find(({ axis }) => axis === 0);
  if (rows === undefined) return new Map();
  const isOfRows = ({ dimension, axis }: (typeof open)[number]): boolean =>
    rows.dimension === undefined ? dimension === undefined && axis === rows.axis : dimension === rows.dimension;
  return new Map(open.filter(isOfRows).map(({ input, axis }) => [input, axis]));
}

/**
 * A function from the shapes of a call to those of the program that it may run in: the batch rounded up to a power of
 * two. If the rows are not known, it returns the shapes themselves.
 */
export function shapeClasses(inputs: readonly OpenInput[]): (shapes: InputShapes) => InputShapes {
  const axes = rowAxes(inputs);
  return (shapes) => {
    const [rows, ...others] = new Set(
      [...axes].flatMap(([name, axis]) => {
        const input = inputShape(shapes, name);
        return input?.values === undefined ? [input?.shape[axis]] : [];
      }),
    );
    if (rows === undefined || others.length > 0 || rows < 1) return shapes;
    const many = 2 ** Math.ceil(Math.log2(rows));
    if (many === rows) return shapes;
    return shapes.map((input) => {
      const axis = axes.get(input.name);
      // Sizing inputs have no rows.
      return axis === undefined || input.values !== undefined
        ? input
        : { ...input, shape: input.shape.with(axis, many) };
    });
  };
}
