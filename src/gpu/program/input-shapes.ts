/**
 * A program's inputs: the shapes that it is made for, with the values of sizing inputs, and the check that given tensors
 * have them.
 */
import { elementCount, elements, type Tensor } from '../../tensor/index.ts';
import { GpuError } from '../types.ts';
import type { InputShape, InputShapes } from './types.ts';

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

/** The expected input. Strings, which do not go to the GPU, may have any length and number. */
interface ExpectedInput extends Omit<Tensor, 'shape' | 'data'> {
  readonly shape?: readonly number[] | undefined;
  readonly bytes: number;
}

/** The given tensors in the order of the inputs; `taker` names their program in errors. @throws GpuError 'invalid' */
export function matchInputs(inputs: readonly ExpectedInput[], given: readonly Tensor[], taker: string): Tensor[] {
  const unknown = given.find(({ name }) => !inputs.some((input) => input.name === name));
  if (unknown !== undefined) throw new GpuError('invalid', `'${unknown.name}' is not an input of the ${taker}`);
  return inputs.map(({ name, datatype, shape, bytes }) => {
    const tensor = given.find((candidate) => candidate.name === name);
    if (tensor === undefined) throw new GpuError('invalid', `input '${name}' is missing`);
    const isSame =
      tensor.datatype === datatype &&
      (shape === undefined ||
        (tensor.shape.length === shape.length &&
          tensor.shape.every((size, axis) => size === shape[axis]) &&
          tensor.data.byteLength === bytes));
    if (isSame) return tensor;
    const found = `${tensor.datatype} [${tensor.shape.join(',')}] with ${tensor.data.byteLength} bytes`;
    const wanted = `${datatype} [${shape?.join(',') ?? '?'}]${shape ? ` of ${elementCount(shape)} elements` : ''}`;
    throw new GpuError('invalid', `input '${name}' is ${found}, and the ${taker} takes ${wanted}`);
  });
}
