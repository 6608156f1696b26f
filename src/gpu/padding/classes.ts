/** Which sizes of a batch share a program: those up to a power of two, from half of it on. */
import type { OpenInput } from '../gate/trial-shapes.ts';
import { inputShape } from '../program/input-shapes.ts';
import type { InputShapes } from '../program/types.ts';

/** The axes along which a model is given rows, by input: all open ones of one name, which the first open axis has. */
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
 * The shapes in whose program inputs of given shapes may run; the given ones where their rows cannot be told, or are a
 * class.
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
      // Values are few numbers, and none of them is a row.
      return axis === undefined || input.values !== undefined
        ? input
        : { ...input, shape: input.shape.with(axis, many) };
    });
  };
}
