/** Writes the call that the form has just made as a command to copy. */
import { exampleBody, exampleCount, quoted } from '../../../../tools/index.ts';

export interface TriedCall {
  readonly url: string;
  readonly body: string;
  readonly json: boolean;
}

export function curlOf({ url, body, json }: TriedCall): string {
  const type = json ? " -H 'Content-Type: application/json'" : '';
  return `curl -s${type} --data-binary ${quoted(body)} ${quoted(url)}`;
}

/** More numbers than this in a text area help nobody. */
const shownMax = 4096;
/** A body of this many numbers is 8 MB of JSON. */
const zerosMax = 2 ** 22;

/** Zeros in the shapes of the inputs, with 1 for varying sizes; undefined where these are too many for a page. */
export function zerosFor(
  inputs: Parameters<typeof exampleBody>[0],
): { readonly text: string; readonly isLong: boolean } | undefined {
  const count = exampleCount(inputs);
  return count > zerosMax ? undefined : { text: exampleBody(inputs), isLong: count > shownMax };
}
