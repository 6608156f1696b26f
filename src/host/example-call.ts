/** A call to try, as a function's `example` setting describes it, or its inputs where it has none. */
import type { FunctionVersion, TensorSpec } from './types.ts';

/**
 * One curl command, ready to be pasted into a shell. `example` is the text of a body, or '@' and the path of a file
 * that holds one, as curl itself has it.
 */
export function exampleCall(baseUrl: string, name: string, example: string): string {
  const body = example.startsWith('@')
    ? `--data-binary ${quotedForShell(example)}`
    : `--data ${quotedForShell(example)}`;
  return `curl -s ${body} ${baseUrl}/function/${encodeURIComponent(name)}`;
}

/** As one word of a POSIX shell; what needs no quotes gets some only where it is no plain path. */
function quotedForShell(text: string): string {
  return /^@[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** One command that calls the function, ready to be pasted into a shell. */
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

/** Nested zeros of the input's shape, 1 where a size varies; '...' where that is too long for a line. */
function exampleOf({ shape, datatype }: TensorSpec): unknown {
  const element = datatype === 'BYTES' ? 'text' : datatype === 'BOOL' ? false : 0;
  if (shape.reduce((product, size) => product * Math.max(1, size), 1) > 64) return '...'.repeat(100);
  return shape.reduceRight<unknown>((inner, size) => Array.from({ length: Math.max(1, size) }, () => inner), element);
}
