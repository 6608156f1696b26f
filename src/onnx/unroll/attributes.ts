/** Attributes of nodes, read with a fallback, and whole numbers that stand in a graph as constants. */
import type { Graph } from '../graph.ts';
import { tensorBytes } from '../tensor-data.ts';
import { ElementType, type AttributeProto, type NodeProto } from '../types.ts';

const decoder = new TextDecoder();

const attributeOf = (node: NodeProto, name: string): AttributeProto | undefined =>
  node.attribute.find((attribute) => attribute.name === name);

export function intAttribute(node: NodeProto, name: string, otherwise: number): number {
  const value = attributeOf(node, name)?.i;
  return value === undefined ? otherwise : Number(value);
}

export const intsAttribute = (node: NodeProto, name: string): readonly number[] | undefined =>
  attributeOf(node, name)?.ints?.map(Number);

export const floatsAttribute = (node: NodeProto, name: string): readonly number[] =>
  attributeOf(node, name)?.floats ?? [];

export function textAttribute(node: NodeProto, name: string, otherwise: string): string {
  const value = attributeOf(node, name)?.s;
  return value === undefined ? otherwise : decoder.decode(value);
}

export const textsAttribute = (node: NodeProto, name: string): readonly string[] =>
  (attributeOf(node, name)?.strings ?? []).map((text) => decoder.decode(text));

/** Larger constants are tables, and no arguments of an operator. */
const elementCountMax = 65_536;

/** The elements of an INT64 or INT32 constant; undefined for anything else. */
export function constantInts(graph: Graph, value: string | undefined): readonly number[] | undefined {
  const weight = value === undefined || value === '' ? undefined : graph.weight(value);
  if (weight?.tensor === undefined || weight.elementCount > elementCountMax) return undefined;
  const wide = weight.elementType === ElementType.INT64;
  if (!wide && weight.elementType !== ElementType.INT32) return undefined;
  // Without a source nobody here knows the folder that the file is in.
  if (weight.tensor.dataLocation === 1 && weight.tensor.source === undefined) return undefined;
  const bytes = tensorBytes(weight.tensor);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: weight.elementCount }, (_, index) =>
    wide ? Number(view.getBigInt64(index * 8, true)) : view.getInt32(index * 4, true),
  );
}
