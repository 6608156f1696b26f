/**
 * Makes ONNX Runtime's error messages readable for users who do not know its source. `Non-zero status code
 * returned while running Gather node. Name:'/Gather' Status Message: /onnxruntime_src/onnxruntime/core/...gather.cc:62
 * virtual onnxruntime::common::Status onnxruntime::Gather::Compute(...) const indices element out of data bounds`
 * becomes `node '/Gather' (Gather): indices element out of data bounds`.
 */
import { stripVTControlCharacters } from 'node:util';

/**
 * `memory`: an allocation failed. `not-implemented`: an operator lacks what the model asks of it. `other`: mostly shapes
 * and values that an operator does not take.
 */
export type OnnxRuntimeErrorKind = 'memory' | 'not-implemented' | 'other';

/** A failure of ONNX Runtime; the message is its reason in one line. */
export class OnnxRuntimeError extends Error {
  override readonly name = 'OnnxRuntimeError';
  readonly kind: OnnxRuntimeErrorKind;

  /** @param said ONNX Runtime's own message */
  constructor(said: string) {
    super(onnxRuntimeReason(said));
    this.kind = /std::bad_alloc|Failed to allocate memory/.test(said)
      ? 'memory'
      : /\bNOT_IMPLEMENTED\b|\bnot (?:yet )?implemented\b|Could not find an implementation/i.test(said)
        ? 'not-implemented'
        : 'other';
  }
}

/** Returns one line: which node failed, and why. A message that ONNX Runtime did not write stays as it is. */
export function onnxRuntimeReason(message: string): string {
  const line = stripVTControlCharacters(message).replaceAll(/\s+/g, ' ').trim();
  // The caller knows which model it opens.
  const named = withoutPlaces(line.replace(/^Load model from .*? failed: ?/, ''))
    .replaceAll(/Non-zero status code returned while running (\S*) node\. Name:'(.*?)' Status Message: ?/g, nodeText)
    .replaceAll(/\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : /g, '')
    .trim();
  const [, start, reason] = /^(.*?: )?(std::bad_alloc|stod|stof|stoi|stol|stoll|stoul|stoull)$/.exec(named) ?? [];
  if (reason !== undefined) return (start ?? '') + (reason === 'std::bad_alloc' ? outOfMemory : notANumber);
  // Some operators give no reason.
  return named.endsWith(':') ? `${named} it failed without a reason` : named;
}

/** `std::bad_alloc` is all that the standard library says. */
const outOfMemory = 'it asks for more memory than there is (std::bad_alloc)';
/** The names of the standard library's functions that read a number from a text. */
const notANumber = 'a text is not a number';

const nodeText = (_match: string, opType: string, name: string): string =>
  name === '' ? `node of ${opType}: ` : `node '${name}' (${opType}): `;

const place = /(?:\/?[\w.+-]+\/)*[\w+-]+\.(?:cc|h|hpp|cpp|inc):\d+ /;

/**
 * Removes each `FILE.cc:LINE`, with the function and the failed condition after it. The function is either its bare
 * name, after a bare file (`split.cc:82 Compute`), or its signature, after a path.
 */
function withoutPlaces(text: string): string {
  let rest = text;
  let kept = '';
  for (let found = place.exec(rest); found !== null; found = place.exec(rest)) {
    kept += rest.slice(0, found.index);
    const after = rest.slice(found.index + found[0].length);
    rest = found[0].includes('/') ? afterCondition(afterSignature(after)) : after.replace(/^\S+ ?/, '');
  }
  return kept + rest;
}

/**
 * `int64_t onnxruntime::HandleNegativeAxis(int64_t, int64_t) [with T = float] MESSAGE`: what follows the parameters.
 * The whole text if there are none.
 */
function afterSignature(text: string): string {
  const opened = parametersAt(text);
  if (opened === undefined) return text;
  let at = closedAt(text, opened, '(', ')');
  for (;;) {
    const more = /^(?: const(?= )| noexcept(?= )|::<lambda\(.*?\)>| (?=\[with ))/.exec(text.slice(at));
    if (more === null) break;
    at += more[0].length;
    if (text.startsWith('[with ', at)) at = closedAt(text, at, '[', ']');
  }
  return text.slice(at).trimStart();
}

/** Where the parameters begin: at the first parenthesis that is in no template's arguments. */
function parametersAt(text: string): number | undefined {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '<') depth++;
    else if (character === '>' && text[at - 1] !== '-') depth--;
    else if (character === '(' && depth <= 0) return text.endsWith('operator', at) ? at + 2 : at;
  }
  return undefined;
}

/** The index after what closes the bracket at `from`; the text's end if nothing does. */
function closedAt(text: string, from: number, opening: string, closing: string): number {
  let depth = 0;
  for (let at = from; at < text.length; at++) {
    if (text[at] === opening) depth++;
    else if (text[at] === closing && --depth === 0) return at + 1;
  }
  return text.length;
}

/** `axis >= 0 was false. MESSAGE`: the message, or the condition where nothing else says what is wrong. */
function afterCondition(text: string): string {
  const [, message] = /^.*? was false\. ?(.+)$/.exec(text) ?? [];
  return message ?? text;
}
