/** One node of a graph whose rows are followed. */
import { attributeOf, type NodeProto } from '../../onnx/index.ts';
import { elements, type Tensor } from '../../tensor/index.ts';
import { outerAt, RowsMeet, type Place, type RowCounts, type Sizes } from './row-layout.ts';

/** `other`: it depends on the number of rows in a way that is not followed: a size, a count. */
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
  /** Undefined where nobody takes it. */
  readonly outputs: readonly (Sizes | undefined)[];
  readonly counts: RowCounts;
}

export type Rule = (step: Step) => readonly Outcome[];

export function meet({ proto, name }: Step, why: string): never {
  throw new RowsMeet(`${proto.opType} '${name}' ${why}`);
}

/** An input that has rows. @throws RowsMeet */
export function rowsAt(step: Step, place: number): RowValue {
  const found = step.inputs[place];
  return found?.kind === 'rows' ? found : meet(step, `takes input ${place} whole`);
}

/** These are the same for any number of rows, or left out. @throws RowsMeet */
export function sameAt(step: Step, ...places: readonly number[]): void {
  for (const place of places) {
    const found = step.inputs[place];
    if (found !== undefined && found.kind !== 'same') meet(step, `has another input ${place} with other rows`);
  }
}

/** Each output has its rows there. */
export const outAt = ({ outputs }: Step, place: Place): readonly Outcome[] =>
  outputs.map((sizes) =>
    sizes === undefined ? { kind: 'other' } : { kind: 'rows', outer: outerAt(sizes.few, place) },
  );

/** Whole numbers known beforehand; undefined where the input is left out. @throws RowsMeet */
export function intsAt(step: Step, place: number): readonly number[] | undefined {
  const found = step.inputs[place];
  if (found === undefined) return undefined;
  if (found.kind !== 'same' || found.constant === undefined)
    return meet(step, `has an input ${place} that is not constant`);
  return Array.from(elements(found.constant) as Iterable<number | bigint>, Number);
}

export const intOf = ({ proto }: Step, name: string, otherwise: number): number => attributeOf(proto, name, otherwise);

export const hasRows = (known: Known | undefined): known is RowValue => known?.kind === 'rows';

/** Inputs that have rows; the others are the same for any number. */
export function allWithRows(step: Step): readonly RowValue[] {
  step.inputs.forEach((known, place) => hasRows(known) || sameAt(step, place));
  return step.inputs.filter(hasRows);
}

/** Where the rows of all inputs lie, counted for a result of so many axes. */
export function broadcastPlace(step: Step, inputs: readonly RowValue[], rank: number): Place {
  const places = inputs.map(({ few, place }): Place => ({
    axis: place.axis + rank - few.length,
    before: place.before,
  }));
  const [first, ...others] = places;
  const areOne = others.every(({ axis, before }) => axis === first!.axis && before === first!.before);
  return first !== undefined && areOne ? first : meet(step, 'sets rows of one input against columns of another');
}
