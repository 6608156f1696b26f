/** What a model declares about its rows, by the names and sizes of its inputs and outputs. */
import type { TensorSpec } from '../onnx/index.ts';

/** More are no batch: they are the samples of a sound, say. */
const rowsMax = 65_536;

export type DeclaredRows =
  /** Dimension 0 of every input and output is open, and may be the batch. */
  | { readonly kind: 'open' }
  /** Dimension 0 of every input and output is fixed to so many rows. */
  | { readonly kind: 'fixed'; readonly rows: number }
  /** A run is one row. The reason names the tensor that has no rows. */
  | { readonly kind: 'none'; readonly reason: string };

/** Converters write these for an unknown size: they name nothing. */
const isName = (name: string | undefined): name is string =>
  name !== undefined && !/^(\?|-1|none|unk__\d+|(.*_)?dynamic_axes_\d+|(.*_)?dim_\d+)$/i.test(name);

const shapeText = ({ shape, dimensionNames }: TensorSpec): string =>
  `[${shape.map((size, axis) => (size === -1 ? (dimensionNames[axis] ?? '?') : size)).join(',')}]`;

/**
 * Rows are along dimension 0 of all inputs and outputs. Whether they are independent of each other is another question:
 * {@link rowsByGraph} and {@link rowsByRuns} answer it.
 */
export function declaredRows({
  inputs,
  outputs = [],
}: {
  readonly inputs: readonly TensorSpec[];
  readonly outputs?: readonly TensorSpec[];
}): DeclaredRows {
  const any = [...inputs, ...outputs].find(({ anyRank }) => anyRank === true);
  if (any !== undefined) return { kind: 'none', reason: `'${any.name}' does not say how many dimensions it has` };
  const [first] = inputs;
  if (first === undefined) return { kind: 'none', reason: 'the model has no inputs' };
  const rows = first.shape[0];
  if (rows === undefined) return { kind: 'none', reason: `input '${first.name}' is a scalar` };
  if (rows === 0 || rows > rowsMax) {
    return { kind: 'none', reason: `input '${first.name}' begins with ${rows}, which is no batch` };
  }
  const [isOpen, size] = [rows === -1, rows === -1 ? 'an open dimension' : String(rows)];
  for (const [role, specs] of [
    ['input', inputs],
    ['output', outputs],
  ] as const) {
    const other = specs.find(({ shape }) => shape[0] !== rows);
    // A model with fixed inputs may make any outputs of them: nothing is cut out of those.
    if (other === undefined || (role === 'output' && !isOpen)) continue;
    const reason = `${role} '${other.name}' ${shapeText(other)} does not begin with ${size}, as input '${first.name}' does`;
    return { kind: 'none', reason };
  }
  if (!isOpen) return { kind: 'fixed', rows };
  const named = inputs.filter(({ dimensionNames }) => isName(dimensionNames[0]));
  const name = named[0]?.dimensionNames[0];
  const otherwise = named.find(({ dimensionNames }) => dimensionNames[0] !== name);
  if (otherwise !== undefined) {
    const both = `'${name}' in input '${named[0]!.name}' and '${otherwise.dimensionNames[0]}' in input '${otherwise.name}'`;
    return { kind: 'none', reason: `the first dimension is ${both}` };
  }
  const again = inputs.find(({ dimensionNames }) => name !== undefined && dimensionNames.indexOf(name, 1) > 0);
  if (again !== undefined) {
    return { kind: 'none', reason: `input '${again.name}' ${shapeText(again)} has '${name}' in two dimensions` };
  }
  return { kind: 'open' };
}
