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

/** An example body: zeros in the shapes of the inputs, with 1 for varying sizes. */
export function exampleBody(
  inputs: readonly { readonly name: string; readonly datatype: string; readonly shape: readonly (number | string)[] }[],
): string {
  const zeros = ({ datatype, shape }: (typeof inputs)[number]): unknown => {
    const sizes = shape.map((size) => (typeof size === 'number' && size > 0 ? size : 1));
    const element = datatype === 'BYTES' ? 'text' : datatype === 'BOOL' ? false : 0;
    if (sizes.reduce((product, size) => product * size, 1) > 4096) return [];
    return sizes.reduceRight<unknown>((inner, size) => Array.from({ length: size }, () => inner), element);
  };
  const [only] = inputs;
  return JSON.stringify(
    inputs.length === 1 && only !== undefined
      ? { input: zeros(only) }
      : { inputs: Object.fromEntries(inputs.map((input) => [input.name, zeros(input)])) },
  );
}
