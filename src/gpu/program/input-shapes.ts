/** The input shapes that a program is made for, with the values of sizing inputs. */
import { elementCount, elements, type Tensor } from '../../tensor/index.ts';
import type { InputShape, InputShapes } from '../program/types.ts';

type Shaped = { readonly name: string; readonly shape: readonly number[] };

/** Inputs with more elements are data, never arguments (a shape, axes). */
export const argumentsMax = 64;

/** @param sizing the inputs whose elements decide sizes: their values become part of the result */
export function shapesOf(tensors: readonly Tensor[], sizing: ReadonlySet<string> = new Set()): InputShapes {
  return tensors.map((tensor): InputShape => {
    const { name, shape } = tensor;
    if (!sizing.has(name) || elementCount(shape) > argumentsMax) return { name, shape };
    return { name, shape, values: Array.from(elements(tensor) as Iterable<number | bigint | boolean>, Number) };
  });
}

export const inputShape = (shapes: InputShapes, name: string): InputShape | undefined =>
  shapes.find((each) => each.name === name);

export const shapeIn = (shapes: InputShapes, name: string): readonly number[] | undefined =>
  inputShape(shapes, name)?.shape;

const textOf = ({ name, shape, values }: InputShape): string =>
  `${name}[${shape.join(',')}]${values === undefined ? '' : `=(${values.join(',')})`}`;

const byName = (one: Shaped, other: Shaped): number => (one.name < other.name ? -1 : Number(one.name > other.name));

/** A key for shapes that does not depend on the order of the inputs. */
export const shapesKey = (shapes: InputShapes): string => shapes.toSorted(byName).map(textOf).join(' ');

/** The inputs whose values a program was made for. */
export const sizingOf = (shapes: InputShapes): ReadonlySet<string> =>
  new Set(shapes.flatMap(({ name, values }) => (values === undefined ? [] : [name])));
