/**
 * Runs a function's inputs in programs for more rows: repeats the last row, and cuts off the results of the repetition.
 */
import type { Tensor } from '../../tensor/index.ts';
import { shapeIn, shapesKey, shapesOf } from '../program/input-shapes.ts';
import type { InputShapes } from '../program/types.ts';
import { cut, repeated, type RowCounts } from './row-layout.ts';
import type { Rows, RowsOf } from './rows.ts';

/** How inputs of some shapes run in a program of others. */
export interface Padding extends Rows {
  readonly counts: RowCounts;
  /** The program's shapes. */
  readonly program: InputShapes;
}

export class PaddedShapes {
  readonly #paddings = new Map<string, Padding>();
  readonly #sizing: ReadonlySet<string>;

  /** @param sizing inputs whose values programs are made for */
  constructor(sizing: ReadonlySet<string>) {
    this.#sizing = sizing;
  }

  set(shapes: InputShapes, padding: Padding): void {
    this.#paddings.set(shapesKey(shapes), padding);
  }

  /** To be called when the shapes have a program of their own. */
  delete(shapes: InputShapes): void {
    this.#paddings.delete(shapesKey(shapes));
  }

  /** To be called when a program is freed. @param program the key of its shapes */
  withoutProgram(program: string): void {
    for (const [key, padding] of this.#paddings) if (shapesKey(padding.program) === program) this.#paddings.delete(key);
  }

  /** Calls `run` with the inputs, padded if a program for more rows is set. */
  async run<Answer extends { readonly outputs: readonly Tensor[] }>(
    inputs: readonly Tensor[],
    run: (inputs: readonly Tensor[]) => Promise<Answer>,
  ): Promise<Answer> {
    const padding = this.#paddings.get(shapesKey(shapesOf(inputs, this.#sizing)));
    if (padding === undefined) return await run(inputs);
    const { program, counts } = padding;
    const padded = inputs.map((input): Tensor => {
      const outer = of(padding.inputs, input)?.outer;
      if (outer === undefined) return input;
      return { ...input, shape: shapeIn(program, input.name)!, data: repeated(input.data, outer, counts) };
    });
    const answer = await run(padded);
    const outputs = answer.outputs.map((output): Tensor => {
      const rows = of(padding.outputs, output);
      if (rows?.outer === undefined) return output;
      return { ...output, shape: rows.shape, data: cut(output.data, rows.outer, counts) };
    });
    return { ...answer, outputs };
  }
}

const of = (rows: readonly RowsOf[], { name }: Tensor): RowsOf | undefined => rows.find((each) => each.name === name);
