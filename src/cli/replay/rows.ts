/** `--rows`: a row of CSV for each invocation that a report counts, written while the replay runs. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { isInTime, type Outcome, type OutcomePlacement } from '../../replay/index.ts';
import { csvText } from '../../report/index.ts';
import { telling, usage } from '../error.ts';

const columns = [
  'system',
  'seed',
  'invocation',
  'function',
  'arrival_ms',
  'outcome',
  'place',
  'start',
  'queue_ms',
  'end_ms',
  'slo_ms',
  'predicted_end_ms',
  'in_time',
] as const;

/** Rows are collected up to so many characters before they go to the file. */
const flushCharacters = 2 ** 16;

/** The replay that rows are of. @param system as it was named, of a comparison */
export interface RowsOf {
  readonly system?: string;
  readonly seed: number;
  readonly functionNames: readonly string[];
}

/** Simulated replays run without a pause, so it writes synchronously, and holds no more than a piece of the rows. */
export class RowsFile implements Disposable {
  readonly #file: string;
  readonly #descriptor: number;
  #text = csvText([columns]);

  /** @throws CliError for a file that cannot be written */
  constructor(file: string) {
    if (file === '-') throw usage('--rows takes the name of a file; standard output is for the report');
    this.#file = file;
    this.#descriptor = telling('cannot write the rows', () => openSync(file, 'w'));
  }

  /** What takes the outcomes of one replay. */
  of({ system = '', seed, functionNames }: RowsOf): (outcome: Outcome) => void {
    return (outcome) => {
      const { sequence, functionIndex, arrivalMs, queueMs, endMs, sloMs, predictedEndMs, placement } = outcome;
      const name = functionNames[functionIndex] ?? `#${functionIndex}`;
      const times = [queueMs, endMs, sloMs, predictedEndMs];
      const row = [system, seed, sequence, name, arrivalMs, ...wordsOf(placement), ...times, String(isInTime(outcome))];
      this.#text += csvText([row]);
      if (this.#text.length >= flushCharacters) this.#flush();
    };
  }

  #flush(): void {
    telling('cannot write the rows', () => writeSync(this.#descriptor, this.#text));
    this.#text = '';
  }

  /** Writes the rest, and says so. @throws CliError where the file does not take it */
  finish(): void {
    this.#flush();
    process.stderr.write(`wrote ${this.#file}\n`);
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}

/** How a request ended, where it ran, and how much of its function was there. */
function wordsOf(placement: OutcomePlacement): readonly [outcome: string, place: string, start: string] {
  switch (placement.kind) {
    case 'gpu':
      return ['answered', `gpu${placement.gpu}`, placement.residency];
    case 'cpu':
      return ['answered', 'cpu', placement.coldStart === true ? 'cold' : 'warm'];
    case 'worker':
      return ['answered', 'worker', ''];
    case 'shed':
    case 'failed':
      return [placement.kind, '', ''];
  }
}
