/** What is wrong with a trace, in one sentence that names the file and, where it has one, the line and the field. */
export class TraceError extends Error {
  override readonly name = 'TraceError';
}

/** Where in a file something is wrong. Lines count from 1. */
export interface TracePlace {
  readonly file: string;
  readonly line: number;
  readonly field?: string;
}

export function traceError({ file, line, field }: TracePlace, problem: string): TraceError {
  const where = field === undefined ? `line ${line}` : `line ${line}, ${field}`;
  return new TraceError(`${file}, ${where}: ${problem}`);
}

/** A part of a file as a message may show it: short, and without what would move a terminal's cursor. */
export function shown(text: string, charactersMax = 40): string {
  const plain = text.replaceAll(/\p{Cc}+/gu, ' ');
  return `'${plain.length > charactersMax ? `${plain.slice(0, charactersMax)}…` : plain}'`;
}
