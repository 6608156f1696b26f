/** A sample call, from a function's `example` setting, or from its inputs if it has none. */
import { exampleBody, exampleCount, quoted } from '../../tools/index.ts';
import type { FunctionVersion } from '../types.ts';

/**
 * One curl command to paste into a shell. `example` is the text of a body, or '@' and the path of a file with one, as
 * in curl.
 */
export function exampleCall(baseUrl: string, name: string, example: string): string {
  return `curl -s ${example.startsWith('@') ? '--data-binary' : '--data'} ${quoted(example)} ${baseUrl}/function/${encodeURIComponent(name)}`;
}

/** One command to paste into a shell that calls the function. */
export function curlCall(baseUrl: string, version: FunctionVersion): string {
  const { example } = version.settings;
  if (example !== undefined) return exampleCall(baseUrl, version.name, example);
  const url = `${baseUrl}/function/${encodeURIComponent(version.name)}`;
  if (version.handlerPath !== undefined) return `curl -s --data-binary @input ${url}`;
  const inputs = version.metadata?.inputs ?? [];
  // A model with thousands of inputs is not called by hand.
  const body = exampleCount(inputs) > elementsMax ? '@input.json' : quoted(exampleBody(inputs));
  return `curl -s --data ${body.length > bodyLengthMax ? '@input.json' : body} ${url}`;
}

/** That fit in a line. */
const elementsMax = 150;
const bodyLengthMax = 300;
