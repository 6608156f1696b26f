/** A call to try, as a function's `example` setting describes it. */

/**
 * One curl command, ready to be pasted into a shell. `example` is the text of a body, or '@' and the path of a file that
 * holds one, as curl itself has it.
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
