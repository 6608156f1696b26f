import type { NodeProto } from '../../onnx/index.ts';
import type { AttributeOf } from '../operators/types.ts';

export type AttributeScalar = number | string | readonly number[];

/** An attribute of a node in the form of the fallback: a number, a text or a list of numbers; else the fallback. */
export function attributeOf<T extends AttributeScalar>(
  { attribute }: NodeProto,
  name: string,
  otherwise: T,
): AttributeOf<T> {
  const found = attribute.find((each) => each.name === name);
  if (found === undefined) return otherwise as unknown as AttributeOf<T>;
  let value: AttributeScalar | undefined;
  if (typeof otherwise === 'number') value = found.f ?? (found.i === undefined ? undefined : Number(found.i));
  else if (typeof otherwise === 'string') value = found.s && new TextDecoder().decode(found.s);
  else value = found.ints?.map(Number) ?? found.floats;
  return (value ?? otherwise) as AttributeOf<T>;
}
