/** Shows a benchmark's current step on standard error: one line written over on a terminal, timed lines elsewhere. */

export interface Progress {
  readonly say: (text: string) => void;
  /** Clears the line of a terminal, or prints the last step if it was not printed yet. */
  readonly end: () => void;
}

export interface ProgressOutput {
  readonly isTTY?: boolean | undefined;
  write(text: string): unknown;
}

/** Steps change several times a second, and a log is read afterwards. */
const linesEveryMs = 2000;

/** @param nowMs a monotonic clock */
export function showProgress(
  output: ProgressOutput = process.stderr,
  nowMs: () => number = () => performance.now(),
): Progress {
  if (output.isTTY === true) {
    const say = (text: string): void => void output.write(`\r\u001B[K${text}`);
    return { say, end: () => say('') };
  }
  const startMs = nowMs();
  let printedMs = -Infinity;
  let printed: string | undefined;
  let waiting: { readonly text: string; readonly atMs: number } | undefined;
  let timer: NodeJS.Timeout | undefined;
  const print = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (waiting === undefined) return;
    output.write(`${((waiting.atMs - startMs) / 1000).toFixed(1)} s: ${waiting.text}\n`);
    printed = waiting.text;
    printedMs = nowMs();
    waiting = undefined;
  };
  const say = (text: string): void => {
    if (waiting === undefined && text === printed) return;
    if (waiting?.text !== text) waiting = { text, atMs: nowMs() };
    const dueMs = printedMs + linesEveryMs - nowMs();
    if (dueMs <= 0) print();
    // The step during which a benchmark hangs is printed as well.
    else timer ??= setTimeout(print, dueMs).unref();
  };
  return { say, end: print };
}
