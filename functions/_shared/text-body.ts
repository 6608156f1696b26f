/** The text of a request: the body as it is, or the field `text` of a JSON object. */
import type { HandlerCall } from '../../src/cpu/index.ts';
import { InputError } from './input-error.ts';

const decoder = new TextDecoder('utf-8', { fatal: true });

/**
 * curl sends `--data '{"text": "..."}'` as a form unless it is told otherwise, so an object with the field counts as
 * JSON under any Content-Type; under application/json nothing else is accepted.
 */
export function textOf({ body, headers }: HandlerCall): string {
  let text: string;
  try {
    text = decoder.decode(body);
  } catch {
    throw new InputError('the body is not UTF-8 text');
  }
  const declared = /^application\/(?:[\w.-]+\+)?json\b/i.test(headers['content-type'] ?? '');
  if (!declared && !text.trimStart().startsWith('{')) return checked(text);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    if (!declared) return checked(text);
    throw new InputError(`the body is not JSON: ${(error as Error).message}`);
  }
  if (typeof parsed === 'object' && parsed !== null && 'text' in parsed && typeof parsed.text === 'string') {
    return checked(parsed.text);
  }
  throw new InputError(`the JSON body has no string in the field 'text'`);
}

function checked(text: string): string {
  if (text.trim() === '') throw new InputError('the text is empty');
  return text;
}
