/** Bodies of plain JSON with which a model can be called: zeros in the shapes of its inputs. */

interface ExampleInput {
  readonly name: string;
  readonly datatype: string;
  /** A size that varies is negative or has a name; it is 1 here. */
  readonly shape: readonly (number | string)[];
}

const sizesOf = (shape: ExampleInput['shape']): number[] =>
  shape.map((size) => (typeof size === 'number' && size > 0 ? size : 1));

/** How many elements {@link exampleBody} has. */
export const exampleCount = (inputs: readonly ExampleInput[]): number =>
  inputs.reduce((sum, { shape }) => sum + sizesOf(shape).reduce((product, size) => product * size, 1), 0);

/** Nested elements in a shape. @param number of each that is a number */
export function nestedExample({ datatype, shape }: Omit<ExampleInput, 'name'>, number = 0): unknown {
  const element = datatype === 'BYTES' ? 'text' : datatype === 'BOOL' ? false : number;
  return sizesOf(shape).reduceRight<unknown>((inner, size) => Array.from({ length: size }, () => inner), element);
}

export function exampleBody(inputs: readonly ExampleInput[]): string {
  const [only, ...others] = inputs;
  return JSON.stringify(
    only !== undefined && others.length === 0
      ? { input: nestedExample(only) }
      : { inputs: Object.fromEntries(inputs.map((input) => [input.name, nestedExample(input)])) },
  );
}
