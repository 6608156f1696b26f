/** Joins the inputs of several calls along dimension 0 into one run of the model, and splits its outputs again. */
import { append } from '../tools/index.ts';
import { bytesElements, elementCount, inParts, rowsOf, type Tensor } from './tensor.ts';

/** The inputs of one call and the outputs it asks for (undefined: all). */
export interface BatchCall {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly string[] | undefined;
}

/**
 * Equal for calls that can share a run: the same inputs by name, datatype and inner shape, and the same requested
 * outputs. Undefined if the call cannot be joined.
 */
export function joinKeyOf({ inputs, outputs }: BatchCall): string | undefined {
  if (rowsOf(inputs) === undefined) return undefined;
  const parts = inputs.map(({ name, datatype, shape }) => [name, datatype, ...shape.slice(1)]);
  return JSON.stringify([parts.sort((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1)), outputs]);
}

/**
 * Sorts calls into groups that can share a run. Returns the indices of each group in order of arrival; a call that
 * cannot be joined is a group by itself.
 */
export function groupCalls(calls: readonly BatchCall[]): number[][] {
  const groups = new Map<string, number[]>();
  calls.forEach((call, index) => {
    const signature = joinKeyOf(call) ?? `alone ${index}`;
    append(groups, signature, index);
  });
  return [...groups.values()];
}

/**
 * The inputs of a group (see {@link groupCalls}) as one set of inputs.
 * @param rowsMin repeats the last row if the calls have fewer rows
 */
export function joinInputs(calls: readonly BatchCall[], rowsMin = 0): Tensor[] {
  const [first] = calls;
  const given = calls.reduce((sum, call) => sum + (rowsOf(call.inputs) ?? 0), 0);
  const rows = Math.max(given, rowsMin);
  if (first === undefined || (calls.length === 1 && rows === given)) return [...(first?.inputs ?? [])];
  return first.inputs.map((model): Tensor => {
    const parts = calls.map((call) => call.inputs.find((input) => input.name === model.name)?.data ?? new Uint8Array());
    const last = parts.at(-1)!;
    const rowBytes = last.byteLength / (calls.at(-1)!.inputs[0]!.shape[0] ?? 1);
    for (let missing = rows - given; missing > 0; missing--) parts.push(last.subarray(last.byteLength - rowBytes));
    const { name, datatype, shape } = model;
    return inParts({ name, datatype, shape: [rows, ...shape.slice(1)] }, parts);
  });
}

/** Views of a tensor's rows: `counts` of them each, from the first row on. */
export function rowParts(tensor: Tensor, counts: readonly number[]): Tensor[] {
  const [total = 1, ...inner] = tensor.shape;
  const ends = tensor.datatype === 'BYTES' ? textEnds(tensor, elementCount(inner)) : undefined;
  const rowBytes = tensor.data.byteLength / total;
  const endOf = (row: number): number => (ends === undefined ? row * rowBytes : (ends[row] ?? 0));
  let from = 0;
  return counts.map((count) => {
    const part = { ...tensor, shape: [count, ...inner], data: tensor.data.subarray(endOf(from), endOf(from + count)) };
    from += count;
    return part;
  });
}

/** Where each row of texts ends in the packed bytes, after a 0. */
function textEnds(tensor: Tensor, perRow: number): number[] {
  const ends = [0];
  let [at, inRow] = [0, 0];
  for (const { byteLength } of bytesElements(tensor)) {
    at += 4 + byteLength;
    if (++inRow < perRow) continue;
    ends.push(at);
    inRow = 0;
  }
  return ends;
}

/**
 * Splits the outputs of a joined run into those of each call, as views. Undefined if an output does not have one row
 * per row of input (a scalar, say, or a pooled result).
 * @param rowsMin as for {@link joinInputs}
 */
export function splitOutputs(outputs: readonly Tensor[], rows: readonly number[], rowsMin = 0): Tensor[][] | undefined {
  const given = rows.reduce((sum, count) => sum + count, 0);
  const total = Math.max(given, rowsMin);
  if (rows.length === 1 && total === given) return [[...outputs]];
  if (outputs.some(({ shape }) => shape[0] !== total)) return undefined;
  const parts = outputs.map((output) => rowParts(output, rows));
  return rows.map((_, call) => parts.map((part) => part[call]!));
}
