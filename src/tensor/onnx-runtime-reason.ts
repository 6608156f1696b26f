/**
 * ONNX Runtime's errors without the place in its source. Many begin with a path, a line and the whole signature of a C++
 * function, which is longer than any message may be: what was wrong stands behind it.
 */

const place = /(?:Load model from \S+ failed:\s*)?[\w./-]*\/[\w.-]+\.(?:cc|cpp|h|hpp|cu):\d+ /g;
/** Macros that return a status name the file and the function alone. */
const shortPlace = /(?<![\w/])\w+\.(?:cc|h):\d+ (?:operator\(\)|[A-Za-z_]\w*) (?=\S)/g;

/** The message without its places. */
export function withoutPlaces(message: string): string {
  let text = '';
  let from = 0;
  for (const { index, 0: found } of message.matchAll(place)) {
    if (index < from) continue;
    text += message.slice(from, index);
    from = afterSignature(message, index + found.length);
  }
  return (text + message.slice(from)).replaceAll(shortPlace, '').trim();
}

/**
 * Where the message goes on behind a signature: `void ns::f(const std::vector<int>&, int) const [with T = float] ...`.
 * Without a pair of parentheses there is none.
 */
function afterSignature(message: string, start: number): number {
  let end = afterParameters(message, start);
  if (end === undefined) return start;
  // `operator()(int)`, `f(int)::g(int)`.
  for (let next: number | undefined; /^(?:\(|::\w)/.test(message.slice(end, end + 3)); end = next) {
    next = afterParameters(message, end);
    if (next === undefined) break;
  }
  if (message.startsWith('::<lambda', end)) end = after(message, end + 2, '<', '>') ?? end;
  end += /^(?:\s*(?:const|noexcept|mutable)\b)*\s*/.exec(message.slice(end))![0].length;
  if (message.startsWith('[with ', end)) end = after(message, end, '[', ']') ?? end;
  return end + /^\s*/.exec(message.slice(end))![0].length;
}

/** Behind the first parentheses that are in no template arguments; undefined if other text comes first. */
function afterParameters(message: string, start: number): number | undefined {
  let at: number | undefined = start;
  while (at !== undefined && at < message.length) {
    const letter = message[at]!;
    if (letter === '(') return after(message, at, '(', ')');
    if (letter === '<') at = after(message, at, '<', '>');
    else if (/[\w:~&*\s,]/.test(letter)) at++;
    else return undefined;
  }
  return undefined;
}

/** Behind the bracket that closes the one at `at`. */
function after(message: string, at: number, open: string, close: string): number | undefined {
  let depth = 0;
  for (let end = at; end < message.length; end++) {
    const letter = message[end];
    // `(N > 1)` in template arguments closes none of them.
    if (letter === '(' && open === '<') end = (after(message, end, '(', ')') ?? message.length) - 1;
    else if (letter === open) depth++;
    else if (letter === close && --depth === 0) return end + 1;
  }
  return undefined;
}

/** The error with {@link withoutPlaces} of its message; the whole text is its cause. */
export function reasoned(error: unknown): Error {
  const message = error instanceof Error ? error.message : String(error);
  const reason = withoutPlaces(message);
  return reason === message && error instanceof Error ? error : new Error(reason, { cause: error });
}
