import type { NodeProto } from '../../onnx/index.ts';

/** Attributes of one node as plain numbers. */
export interface Attributes {
  readonly int: (name: string, fallback: number) => number;
  readonly ints: (name: string) => readonly number[] | undefined;
  readonly text: (name: string, fallback: string) => string;
}

export function attributesOf({ attribute }: NodeProto): Attributes {
  const find = (name: string) => attribute.find((each) => each.name === name);
  return {
    int: (name, fallback) => {
      const value = find(name)?.i;
      return value === undefined ? fallback : Number(value);
    },
    ints: (name) => find(name)?.ints?.map(Number),
    text: (name, fallback) => {
      const value = find(name)?.s;
      return value === undefined ? fallback : new TextDecoder().decode(value);
    },
  };
}
