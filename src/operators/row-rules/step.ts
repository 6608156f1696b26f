/** One node of a graph, for the row rules. */
import { attributeOf, type NodeProto } from '../../onnx/index.ts';
import { elements, type Tensor } from '../../tensor/index.ts';
import { outerAt, RowsMeet, type Place, type RowCounts, type Sizes } from './place.ts';

/** `other`: the value depends on the number of rows in another way: a size, a count. */
export type Outcome =
  { readonly kind: 'same' } | { readonly kind: 'rows'; readonly outer: number } | { readonly kind: 'other' };

export type Known = Sizes & { readonly constant: Tensor | undefined } & (
    { readonly kind: 'same' | 'other' } | { readonly kind: 'rows'; readonly outer: number; readonly place: Place }
  );

export type RowValue = Known & { readonly kind: 'rows' };

export interface Step {
  readonly proto: NodeProto;
  readonly name: string;
  readonly opset: number;
  readonly inputs: readonly (Known | undefined)[];
  /** Undefined if the output is not used. */
  readonly outputs: readonly (Sizes | undefined)[];
  readonly counts: RowCounts;
  readonly others: OtherRows;
}

/** Whose the other rows of a run are: `joined` of other calls, with any values; `padded` the last row, repeated. */
export type OtherRows = 'joined' | 'padded';

export type Rule = (step: Step) => readonly Outcome[];

/** The rules cannot follow the rows through the node. @throws RowsMeet */
export function meet({ proto, name }: Step, why: string): never {
  throw new RowsMeet(`${proto.opType} '${name}' ${why}`);
}

/** The node's result for a row depends on other rows. @throws RowsMeet */
export function mixes({ proto, name }: Step, why: string): never {
  throw new RowsMeet(`${proto.opType} '${name}' ${why}`, true);
}

/** An input that must have rows. @throws RowsMeet */
export function rowsAt(step: Step, place: number): RowValue {
  const found = step.inputs[place];
  return found?.kind === 'rows' ? found : meet(step, `has no rows in input ${place}`);
}

/** These inputs must be the same for any number of rows, or omitted. @throws RowsMeet */
export function sameAt(step: Step, ...places: readonly number[]): void {
  for (const place of places) {
    const found = step.inputs[place];
    if (found !== undefined && found.kind !== 'same') meet(step, `has an input ${place} that depends on the rows`);
  }
}

/** All outputs have their rows at `place`. */
export const outAt = ({ outputs }: Step, place: Place): readonly Outcome[] =>
  outputs.map((sizes) =>
    sizes === undefined ? { kind: 'other' } : { kind: 'rows', outer: outerAt(sizes.few, place) },
  );

/** A constant input's integers; undefined if it is omitted. @throws RowsMeet */
export function intsAt(step: Step, place: number): readonly number[] | undefined {
  const found = step.inputs[place];
  if (found === undefined) return undefined;
  if (found.kind !== 'same' || found.constant === undefined)
    return meet(step, `has an input ${place} that is not constant`);
  return Array.from(elements(found.constant) as Iterable<number | bigint>, Number);
}

export const intOf = ({ proto }: Step, name: string, otherwise: number): number => attributeOf(proto, name, otherwise);

export const hasRows = (known: Known | undefined): known is RowValue => known?.kind === 'rows';

/** Inputs that have rows; the others must be the same for any number of rows. @throws RowsMeet */
export function allWithRows(step: Step): readonly RowValue[] {
  step.inputs.forEach((known, place) => hasRows(known) || sameAt(step, place));
  return step.inputs.filter(hasRows);
}

/** The common place of all inputs' rows, in a broadcast result of `rank` axes. @throws RowsMeet */
export function broadcastPlace(step: Step, inputs: readonly RowValue[], rank: number): Place {
  const places = inputs.map(({ few, place }): Place => ({
    axis: place.axis + rank - few.length,
    before: place.before,
  }));
  const [first, ...others] = places;
  const areOne = others.every(({ axis, before }) => axis === first!.axis && before === first!.before);
  return first !== undefined && areOne ? first : meet(step, 'has its rows on different axes');
}
