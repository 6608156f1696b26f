/** A sample call, from a function's `example` setting, or from its inputs if it has none. */
import type { FunctionVersion, TensorSpec } from '../types.ts';

/**
 * One curl command to paste into a shell. `example` is the text of a body, or '@' and the path of a file with one, as
 * in curl.
 */
export function exampleCall(baseUrl: string, name: string, example: string): string {
  const body = example.startsWith('@')
    ? `--data-binary ${quotedForShell(example)}`
    : `--data ${quotedForShell(example)}`;
  return `curl -s ${body} ${baseUrl}/function/${encodeURIComponent(name)}`;
}

/** Quoted as one word for a POSIX shell; plain paths stay unquoted. */
function quotedForShell(text: string): string {
  return /^@[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** One command to paste into a shell that calls the function. */
export function curlCall(baseUrl: string, version: FunctionVersion): string {
  const { example } = version.settings;
  if (example !== undefined) return exampleCall(baseUrl, version.name, example);
  const url = `${baseUrl}/function/${encodeURIComponent(version.name)}`;
  if (version.handlerPath !== undefined) return `curl -s --data-binary @input ${url}`;
  const inputs = version.metadata?.inputs ?? [];
  const [only] = inputs;
  const body =
    inputs.length === 1 && only !== undefined
      ? { input: exampleOf(only) }
      : { inputs: Object.fromEntries(inputs.map((input) => [input.name, exampleOf(input)])) };
  const json = JSON.stringify(body);
  // A model with thousands of inputs is not called by hand.
  return json.length > 300
    ? `curl -s --data @input.json ${url}`
    : `curl -s --data '${json.replaceAll("'", '\\u0027')}' ${url}`;
}

/** Nested zeros in the input's shape, with 1 for sizes that vary; '...' if that is too long for a line. */
function exampleOf({ shape, datatype }: TensorSpec): unknown {
  const element = datatype === 'BYTES' ? 'text' : datatype === 'BOOL' ? false : 0;
  if (shape.reduce((product, size) => product * Math.max(1, size), 1) > 64) return '...'.repeat(100);
  return shape.reduceRight<unknown>((inner, size) => Array.from({ length: Math.max(1, size) }, () => inner), element);
}
