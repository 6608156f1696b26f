/** Checks by runs of a model whether its rows are independent of each other. */
import { joinInputs, rowParts, splitOutputs, type Tensor } from '../tensor/index.ts';
import { rowDifference } from './differ.ts';
import { extremeRows, ordinaryRow, type Range, type Row } from './vary.ts';

export interface RowRuns {
  /** Runs the model. Throws ONNX Runtime's error. */
  readonly run: (inputs: readonly Tensor[]) => readonly Tensor[];
  /** Inputs that the model accepts, of any number of rows. */
  readonly inputs: readonly Tensor[];
  /** Most rows of a run. */
  readonly rowsMax: number;
  /** What something in the graph may compare rows with. */
  readonly thresholds: readonly number[];
  readonly isTimeUp: () => boolean;
}

export type RowsByRuns =
  | { readonly kind: 'independent' }
  | { readonly kind: 'mixing'; readonly reason: string }
  /** `isOutOfTime`: whatever was compared agreed. `compared`: numbers of rows whose runs were compared. */
  | {
      readonly kind: 'unknown';
      readonly reason: string;
      readonly isOutOfTime: boolean;
      readonly compared: readonly number[];
    };

/** Numbers of rows that are compared, besides the most. */
const rowCounts = [2, 3, 8];
/** Larger runs are not tried. */
const bytesMax = 256 * 2 ** 20;
/** Rows of different numbers. */
const ordinaryMax = 8;
/** The largest whole numbers that are tried as an input's, the largest first. */
const largest = [99, 7, 1];

class TimeUp extends Error {}
class Mixing extends Error {}
class Unknown extends Error {}

/**
 * Two comparisons decide. In runs of one size, a row must give the same whatever the other rows hold: any other result
 * is the neighbours' doing, and no rounding hides it. And rows must agree with their runs alone, within the arithmetic of
 * another number of rows: else the result depends on how many they are, or on their places.
 */
export function rowsByRuns(options: RowRuns): RowsByRuns {
  const compared: number[] = [];
  try {
    new Check(options).run(compared);
    return { kind: 'independent' };
  } catch (error) {
    if (error instanceof Mixing) return { kind: 'mixing', reason: error.message };
    if (error instanceof TimeUp || error instanceof Unknown)
      return { kind: 'unknown', reason: error.message, isOutOfTime: error instanceof TimeUp, compared };
    throw error;
  }
}

class Check {
  readonly #options: RowRuns;
  readonly #row: Row;
  readonly #ranges = new Map<string, Range>();
  /** Answers to rows alone. */
  readonly #alone = new Map<Row, readonly Tensor[]>();

  constructor(options: RowRuns) {
    this.#options = options;
    this.#row = options.inputs.map((input) => rowParts(input, [1])[0]!);
  }

  run(compared: number[]): void {
    const { rowsMax, thresholds, inputs } = this.#options;
    if (this.#tried(this.#row) === undefined) {
      throw new Unknown(`the model does not run on one row of these inputs: ${this.#problem}`);
    }
    this.#findRanges();
    const rangeOf = (input: string): Range => this.#ranges.get(input) ?? [0, 0];
    const given = inputs[0]?.shape[0] ?? 1;
    const own = Array.from({ length: Math.min(given, ordinaryMax) }, (_, at) =>
      inputs.map((input) => rowParts(input, [at, 1])[1]!),
    );
    const varied = Array.from({ length: ordinaryMax }, (_, number) => ordinaryRow(this.#row, number, rangeOf));
    const accepts = (row: Row): boolean => this.#tried(row) !== undefined;
    const ordinary = [...own, ...varied.slice(1)].filter(accepts).slice(0, ordinaryMax);
    const extreme = extremeRows(this.#row, thresholds, rangeOf).filter(accepts);
    const rowBytes = this.#row.reduce((sum, { data }) => sum + data.byteLength, 0);
    const counts = [...new Set([...rowCounts, rowsMax])].filter((count) => count > 1 && count <= rowsMax);
    for (const count of counts.sort((a, b) => a - b)) {
      if (count * rowBytes > bytesMax) break;
      this.#compare(count, ordinary, extreme);
      compared.push(count);
    }
  }

  /** Each input of whole numbers is tried alone: a mask takes 1, an index of a large table more. */
  #findRanges(): void {
    for (const [place, tensor] of this.#row.entries()) {
      if (/^(FP|BF|BOOL|BYTES)/.test(tensor.datatype)) continue;
      const range = largest
        .map((high): Range => [0, high])
        .find((each) => {
          const row = ordinaryRow(this.#row, 1, () => each);
          return this.#tried(this.#row.with(place, row[place]!)) !== undefined;
        });
      this.#ranges.set(tensor.name, range ?? [0, 0]);
    }
  }

  #compare(count: number, ordinary: readonly Row[], extreme: readonly Row[]): void {
    const rows = Array.from({ length: count }, (_, at) => ordinary[at % ordinary.length]!);
    const answers = this.#together(rows);
    const again = this.#together(rows);
    if (rows.some((_, at) => rowDifference(answers[at]!, again[at]!, 'beside others') !== undefined)) {
      throw new Unknown('two runs of the model on the same inputs differ: it is random');
    }
    this.#compareAlone(rows, answers);
    // Two rows: each neighbour by itself. More: every second row keeps its place among all of them.
    const passes = count === 2 ? extreme.map((row) => [row]) : extreme.length === 0 ? [] : [extreme];
    for (const neighbours of passes) {
      for (const kept of [0, 1]) {
        const mixed = rows.map((row, at) => (at % 2 === kept ? row : neighbours[(at >> 1) % neighbours.length]!));
        const found = this.#together(mixed);
        for (let at = kept; at < count; at += 2) {
          const difference = rowDifference(answers[at]!, found[at]!, 'beside others');
          if (difference === undefined) continue;
          const { output, why } = difference;
          throw new Mixing(`a row of output '${output}' depends on the other rows of a run of ${count}: ${why}`);
        }
      }
    }
  }

  /** One row that rounds to another side of a step proves nothing; most of them do. */
  #compareAlone(rows: readonly Row[], answers: readonly (readonly Tensor[])[]): void {
    const differences = rows.flatMap((row, at) => {
      const found = rowDifference(answers[at]!, this.#alone.get(row)!, 'alone');
      return found === undefined ? [] : [found];
    });
    const [first] = differences;
    if (first === undefined || differences.length * 2 < rows.length) return;
    throw new Mixing(
      `a row of output '${first.output}' in a run of ${rows.length} differs from its run alone: ${first.why}`,
    );
  }

  #problem = '';

  /** The answer to a row alone; undefined if the model does not accept it. */
  #tried(row: Row): readonly Tensor[] | undefined {
    const known = this.#alone.get(row);
    if (known !== undefined) return known;
    try {
      const outputs = this.#ran(row);
      const other = outputs.find(({ shape }) => shape[0] !== 1);
      if (other !== undefined) {
        throw new Mixing(`output '${other.name}' has the shape [${other.shape.join(',')}] for one row`);
      }
      this.#alone.set(row, outputs);
      return outputs;
    } catch (error) {
      if (error instanceof TimeUp || error instanceof Mixing) throw error;
      this.#problem = error instanceof Error ? error.message : String(error);
      return undefined;
    }
  }

  /** The answer to each of the rows, in one run. */
  #together(rows: readonly Row[]): readonly (readonly Tensor[])[] {
    let outputs: readonly Tensor[];
    try {
      outputs = this.#ran(joinInputs(rows.map((inputs) => ({ inputs, outputs: undefined }))));
    } catch (error) {
      if (error instanceof TimeUp) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new Mixing(`the model runs each of ${rows.length} rows alone, but not together: ${reason}`);
    }
    const parts = splitOutputs(
      outputs,
      rows.map(() => 1),
    );
    if (parts !== undefined) return parts;
    const other = outputs.find(({ shape }) => shape[0] !== rows.length)!;
    throw new Mixing(`output '${other.name}' has the shape [${other.shape.join(',')}] for ${rows.length} rows`);
  }

  #ran(inputs: readonly Tensor[]): readonly Tensor[] {
    if (this.#options.isTimeUp()) throw new TimeUp('the check took too long');
    return this.#options.run(inputs);
  }
}
