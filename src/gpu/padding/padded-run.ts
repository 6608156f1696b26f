/**
 * Runs a function's inputs in programs for more rows: repeats the last row, and cuts off the results of the repetition.
 */
import type { Tensor } from '../../tensor/index.ts';
import { shapeIn } from '../program/input-shapes.ts';
import type { InputShapes } from '../program/types.ts';
import { cut, repeated, type RowCounts, type Rows, type RowsOf } from '../../rows/index.ts';

/** How inputs of some shapes run in a program of others. */
export interface Padding extends Rows {
  readonly counts: RowCounts;
  /** The program's shapes. */
  readonly program: InputShapes;
}

/** Calls `run` with the padded inputs. */
export async function runPadded<Answer extends { readonly outputs: readonly Tensor[] }>(
  padding: Padding,
  inputs: readonly Tensor[],
  run: (inputs: readonly Tensor[]) => Promise<Answer>,
): Promise<Answer> {
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

const of = (rows: readonly RowsOf[], { name }: Tensor): RowsOf | undefined => rows.find((each) => each.name === name);
