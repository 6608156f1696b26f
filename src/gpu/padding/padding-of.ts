/** Finds out from the model's graph whether inputs of some shapes may run in the program of others. */
import { baseOf } from '../program/compile-model.ts';
import { shapeIn } from '../program/input-shapes.ts';
import { prepareGraph } from '../program/prepare.ts';
import type { InputShapes } from '../program/types.ts';
import type { Padding } from './padded-run.ts';
import { differingAxis, rowsOf, type RowCounts } from '../../rows/index.ts';

export type PaddingFound =
  { readonly kind: 'padded'; readonly padding: Padding } | { readonly kind: 'exact'; readonly reason: string };

/** @throws ProgramError if ONNX Runtime refuses the graph of either shapes */
export async function paddingOf(
  modelPath: string,
  shapes: InputShapes,
  program: InputShapes,
  cacheFolder: string,
): Promise<PaddingFound> {
  const axes = new Map<string, number>();
  const counts = new Set<string>();
  for (const { name, shape: few } of shapes) {
    const many = shapeIn(program, name) ?? few;
    const axis = differingAxis({ few, many });
    if (axis === undefined) continue;
    axes.set(name, axis);
    counts.add(JSON.stringify({ few: few[axis], many: many[axis] } satisfies { [K in keyof RowCounts]: unknown }));
  }
  const [only, ...others] = [...counts].map((text) => JSON.parse(text) as RowCounts);
  if (only === undefined || others.length > 0) return { kind: 'exact', reason: 'its inputs have no rows in common' };
  const base = await baseOf(modelPath, cacheFolder);
  const few = await prepareGraph(base, shapes, cacheFolder);
  const many = await prepareGraph(base, program, cacheFolder);
  const found = rowsOf(few, many, axes, only, 'padded');
  if (found.kind === 'meet') return { kind: 'exact', reason: found.reason };
  return { kind: 'padded', padding: { counts: only, program, inputs: found.inputs, outputs: found.outputs } };
}
