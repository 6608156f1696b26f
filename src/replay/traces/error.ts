/** What is wrong with a trace, in one sentence that names the file and, if there is one, the line and the field. */
export class TraceError extends Error {
  override readonly name = 'TraceError';
}

/** The place of an error in a file. Lines count from 1. */
export interface TracePlace {
  readonly file: string;
  readonly line: number;
  readonly field?: string;
}

export function traceError({ file, line, field }: TracePlace, problem: string): TraceError {
  const where = field === undefined ? `line ${line}` : `line ${line}, ${field}`;
  return new TraceError(`${file}, ${where}: ${problem}`);
}

/** A part of a file for a message: short, and without control characters for a terminal. */
export function shown(text: string, charactersMax = 40): string {
  const plain = text.replaceAll(/\p{Cc}+/gu, ' ');
  return `'${plain.length > charactersMax ? `${plain.slice(0, charactersMax)}…` : plain}'`;
}
