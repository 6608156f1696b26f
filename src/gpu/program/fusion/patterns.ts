/** What fusions look for: neighbours that take a value alone, and constants of one element. */
import { attributeOf } from '../../../onnx/index.ts';
import type { DataType } from '../../../tensor/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';

const views = new Set(['Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'Identity', 'turntable.View']);

export const isView = ({ type }: WorkNode): boolean => views.has(type);

/** The value whose bytes a view shows. */
export function rootOf(graph: WorkGraph, value: string): string {
  let root = value;
  for (let node = graph.producer(root); node !== undefined && isView(node); node = graph.producer(root)) {
    root = node.proto.input[0]!;
  }
  return root;
}

/** Datatypes that matrix products take. */
const productTypes = new Set<DataType>(['FP32', 'FP16', 'BF16']);

export function hasProductTypes(graph: WorkGraph, values: readonly string[]): boolean {
  return values.every((value) => productTypes.has(graph.values.get(value)?.datatype ?? 'BYTES'));
}

/** The operand of a node of two that is not this one. */
export function otherInput({ proto }: WorkNode, value: string): string | undefined {
  const [a, b] = proto.input;
  if (proto.input.length !== 2 || a === b) return undefined;
  return a === value ? b : b === value ? a : undefined;
}

export const permOf = ({ proto }: WorkNode): readonly number[] => attributeOf<readonly number[]>(proto, 'perm', []);

export const sameNumbers = (a: readonly number[] | undefined, b: readonly number[] | undefined): boolean =>
  a !== undefined && b !== undefined && a.length === b.length && a.every((value, index) => value === b[index]);

/** Whether a permutation exchanges the last two axes and nothing else; an absent one reverses all. */
export function swapsLastTwo(perm: readonly number[], rank: number): boolean {
  if (rank < 2) return false;
  const order = perm.length === 0 ? Array.from({ length: rank }, (_, axis) => rank - 1 - axis) : perm;
  return order.every((axis, place) => axis === (place < rank - 2 ? place : place === rank - 2 ? rank - 1 : rank - 2));
}

/** Elements of a vector along the last axis of `n`: [n], [1,n]; undefined for anything else. */
export function isRowVector(shape: readonly number[] | undefined, n: number): boolean {
  return shape !== undefined && shape.at(-1) === n && shape.slice(0, -1).every((size) => size === 1);
}
