/** What the inputs of a call or a program are, as far as a program is made for it. */
import { elementCount, elements, type Tensor } from '../../tensor/index.ts';
import type { InputShape, InputShapes } from '../program/types.ts';

type Shaped = { readonly name: string; readonly shape: readonly number[] };

/** As many numbers as an argument has at most. */
export const argumentsMax = 64;

/** @param sizing the inputs whose elements decide sizes: programs are made for those elements too */
export function shapesOf(tensors: readonly Tensor[], sizing: ReadonlySet<string> = new Set()): InputShapes {
  return tensors.map((tensor): InputShape => {
    const { name, shape } = tensor;
    // More are no arguments, whatever they decide: there is no program for them.
    if (!sizing.has(name) || elementCount(shape) > argumentsMax) return { name, shape };
    return { name, shape, values: Array.from(elements(tensor) as Iterable<number | bigint | boolean>, Number) };
  });
}

/** Of one input; undefined where nothing is said of it. */
export const inputShape = (shapes: InputShapes, name: string): InputShape | undefined =>
  shapes.find((each) => each.name === name);

export const shapeIn = (shapes: InputShapes, name: string): readonly number[] | undefined =>
  inputShape(shapes, name)?.shape;

const textOf = ({ name, shape, values }: InputShape): string =>
  `${name}[${shape.join(',')}]${values === undefined ? '' : `=(${values.join(',')})`}`;

const byName = (one: Shaped, other: Shaped): number => (one.name < other.name ? -1 : Number(one.name > other.name));

/** Equal for equal shapes, in whatever order the inputs stand. */
export const shapesKey = (shapes: InputShapes): string => shapes.toSorted(byName).map(textOf).join(' ');

/** The inputs whose values a program was made for. */
export const sizingOf = (shapes: InputShapes): ReadonlySet<string> =>
  new Set(shapes.flatMap(({ name, values }) => (values === undefined ? [] : [name])));
