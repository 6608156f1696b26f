/** Attributes of nodes, read with a fallback. */
import type { NodeProto } from './types.ts';

/**
 * The fallback selects the form of an attribute: a number, a string or a list of numbers; undefined also means a list.
 */
export type AttributeFallback = number | string | readonly number[] | undefined;

/** Numbers and strings widen: a fallback of 1 does not make the attribute a 1. */
export type AttributeOf<T> = T extends number
  ? number
  : T extends string
    ? string
    : readonly number[] | Extract<T, undefined>;

export type AttributeReader = <T extends AttributeFallback>(name: string, otherwise: T) => AttributeOf<T>;

/** An attribute in the form of the fallback, or the fallback if the node lacks it. */
export function attributeOf<T extends AttributeFallback>(
  { attribute }: NodeProto,
  name: string,
  otherwise: T,
): AttributeOf<T> {
  const found = attribute.find((each) => each.name === name);
  let value: AttributeFallback;
  if (typeof otherwise === 'number') value = found?.f ?? (found?.i === undefined ? undefined : Number(found.i));
  else if (typeof otherwise === 'string') value = found?.s && new TextDecoder().decode(found.s);
  else value = found?.ints?.map(Number) ?? found?.floats;
  return (value ?? otherwise) as AttributeOf<T>;
}

/** For callers without access to the node. */
export const attributeReader =
  (node: NodeProto): AttributeReader =>
  (name, otherwise) =>
    attributeOf(node, name, otherwise);

/** An axis counted from the end becomes one counted from the front. */
export const axisFromFront = (axis: number, rank: number): number => (axis < 0 ? axis + rank : axis);
