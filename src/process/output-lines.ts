/** Turns a child process's standard output and error into log lines, at a limited rate. */
import { stripVTControlCharacters } from 'node:util';

/** Characters of a line that are kept. */
const lineCharactersMax = 2000;
/** Lines that are passed on per second. */
const linesPerSecondMax = 50;

/** Joins chunks into lines, cuts long lines, and counts lines beyond the rate instead of passing them on. */
export class OutputLines {
  readonly #log: (line: string) => void;
  readonly #nowMs: () => number;
  #line = '';
  /** Characters of the line that were dropped. */
  #cut = 0;
  #secondSinceMs = -Infinity;
  #lines = 0;
  #leftOut = 0;

  constructor(log: (line: string) => void, nowMs: () => number = () => performance.now()) {
    this.#log = log;
    this.#nowMs = nowMs;
  }

  push(text: string): void {
    let from = 0;
    for (let to = text.indexOf('\n'); to !== -1; to = text.indexOf('\n', from)) {
      this.#append(text, from, to);
      this.#endLine();
      from = to + 1;
    }
    this.#append(text, from, text.length);
  }

  /** The stream has ended: the rest is a line too. */
  end(): void {
    this.#endLine();
    this.#tellLeftOut();
  }

  #append(text: string, from: number, to: number): void {
    const count = Math.min(to - from, lineCharactersMax - this.#line.length);
    this.#line += text.slice(from, from + count);
    this.#cut += to - from - count;
  }

  #endLine(): void {
    // ONNX Runtime colours its lines, also where no terminal reads them.
    const text = stripVTControlCharacters(this.#line);
    const line = this.#cut === 0 ? text : `${text}... (${this.#cut} more characters)`;
    this.#line = '';
    this.#cut = 0;
    if (line.trim() === '') return;
    const nowMs = this.#nowMs();
    if (nowMs - this.#secondSinceMs >= 1000) {
      this.#tellLeftOut();
      this.#secondSinceMs = nowMs;
      this.#lines = 0;
    }
    this.#lines++;
    if (this.#lines > linesPerSecondMax) this.#leftOut++;
    else this.#log(line);
  }

  #tellLeftOut(): void {
    if (this.#leftOut > 0) this.#log(`${this.#leftOut} lines were left out: more than ${linesPerSecondMax} a second`);
    this.#leftOut = 0;
  }
}
