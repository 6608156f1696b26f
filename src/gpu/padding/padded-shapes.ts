/**
 * Inputs of a function that run in a program for more rows: with the last one repeated, and what comes of that cut off.
 */
import type { Tensor } from '../../tensor/index.ts';
import { shapeIn, shapesKey, shapesOf } from '../program/input-shapes.ts';
import type { InputShapes } from '../program/types.ts';
import { cut, repeated, type RowCounts } from './row-layout.ts';
import type { Rows, RowsOf } from './rows.ts';

/** How inputs of some shapes run in a program of others. */
export interface Padding extends Rows {
  readonly counts: RowCounts;
  /** Of the program. */
  readonly program: InputShapes;
}

export class PaddedShapes {
  readonly #paddings = new Map<string, Padding>();
  readonly #sizing: ReadonlySet<string>;

  /** @param sizing the inputs whose values its programs are made for */
  constructor(sizing: ReadonlySet<string>) {
    this.#sizing = sizing;
  }

  set(shapes: InputShapes, padding: Padding): void {
    this.#paddings.set(shapesKey(shapes), padding);
  }

  /** These have a program of their own now. */
  delete(shapes: InputShapes): void {
    this.#paddings.delete(shapesKey(shapes));
  }

  /** The program is given back. */
  withoutProgram(program: string): void {
    for (const [key, padding] of this.#paddings) if (shapesKey(padding.program) === program) this.#paddings.delete(key);
  }

  /** Runs inputs in the program that takes them, padded or as they are. */
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
