/** Writes the call that the form has just made as a command to copy. */
export interface TriedCall {
  readonly url: string;
  readonly body: string;
  readonly json: boolean;
}

export function curlOf({ url, body, json }: TriedCall): string {
  const type = json ? " -H 'Content-Type: application/json'" : '';
  return `curl -s${type} --data-binary ${quoted(body)} ${quoted(url)}`;
}

/** Quotes a text as one word of a POSIX shell. */
function quoted(text: string): string {
  return /^[\w./:@%+=-]+$/.test(text) && !text.startsWith('@') ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** More numbers than this in a text area help nobody. */
const shownMax = 4096;
/** A body of this many numbers is 8 MB of JSON. */
const zerosMax = 2 ** 22;

type ExampleInput = { readonly name: string; readonly datatype: string; readonly shape: readonly (number | string)[] };

/** Zeros in the shapes of the inputs, with 1 for varying sizes; undefined where these are too many for a page. */
export function exampleBody(
  inputs: readonly ExampleInput[],
): { readonly text: string; readonly isLong: boolean } | undefined {
  const counts = inputs.map(({ shape }) => sizesOf(shape).reduce((product, size) => product * size, 1));
  const count = counts.reduce((sum, each) => sum + each, 0);
  if (count > zerosMax) return undefined;
  const [only] = inputs;
  const text = JSON.stringify(
    inputs.length === 1 && only !== undefined
      ? { input: zeros(only) }
      : { inputs: Object.fromEntries(inputs.map((input) => [input.name, zeros(input)])) },
  );
  return { text, isLong: count > shownMax };
}

const sizesOf = (shape: ExampleInput['shape']): number[] =>
  shape.map((size) => (typeof size === 'number' && size > 0 ? size : 1));

function zeros({ datatype, shape }: ExampleInput): unknown {
  const element = datatype === 'BYTES' ? 'text' : datatype === 'BOOL' ? false : 0;
  return sizesOf(shape).reduceRight<unknown>((inner, size) => Array.from({ length: size }, () => inner), element);
}
