/** Attention as its operators describe it: heads that lie anywhere, and changes of their scores. */
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import { elementsOf, parametersOf, type Stored } from '../common/elements.ts';
import { broadcastStrides, weightedSum } from '../common/indexing.ts';
import type { Parameter } from '../common/launching.ts';
import { Unsupported, type Emitter, type Value } from '../types.ts';

/** How many heads an item has, of how many rows, and how many elements a row of one has. */
export interface HeadSizes {
  readonly heads: number;
  readonly rows: number;
  readonly size: number;
}

/** Where the heads of a tensor lie: elements from item to item, from head to head, and from row to row. */
export interface Heads extends Stored, HeadSizes {
  readonly batch: number;
  readonly head: number;
  readonly row: number;
}

/** C expressions of where a score is: item, head, query and key; and of the score of what nobody sees. */
export interface Place {
  readonly b: string;
  readonly h: string;
  readonly i: string;
  readonly j: string;
  readonly hidden: string;
}

/** One change of the scores, such as a mask: a C expression of the new score. */
export interface ScoreChange {
  readonly parameters: readonly Parameter[];
  readonly score: (x: string, at: Place) => string;
}

export interface Attention {
  readonly batch: number;
  readonly q: Heads;
  /** Fewer heads than those of `q` are each for several of them. */
  readonly k: Heads;
  readonly v: Heads;
  readonly y: Heads;
  readonly scale: number;
  /** Applied one after the other. */
  readonly changes: readonly ScoreChange[];
  /**
   * A further output [batch, heads, queries, keys]: the scores after so many changes, or the shares that the softmax
   * makes of them.
   */
  readonly scores?: { readonly value: Value; readonly after: number | 'softmax' } | undefined;
}

/** C expression over b, h and r: where a head's row begins. */
export const rowAt = (of: Heads): string => `b * ${of.batch} + h * ${of.head} + r * ${of.row}`;

/** Contiguous [batch, heads, rows, size]. */
export function headsApart({ buffer, kept }: Stored, { heads, rows, size }: HeadSizes): Heads {
  return { buffer, kept, heads, rows, size, batch: heads * rows * size, head: rows * size, row: size };
}

/** The same in memory that lives for the node's launches only. */
export function scratchHeads(emitter: Emitter, kept: DataType, batch: number, sizes: HeadSizes): Heads {
  const buffer = emitter.scratch(batch * sizes.heads * sizes.rows * sizes.size * elementBytes[kept]);
  return headsApart({ buffer, kept }, sizes);
}

/** Why an operator does not run: inputs that it would have to know, by their places. @throws Unsupported */
export function refuseInputs(emitter: Emitter, names: Readonly<Record<number, string>>): void {
  for (const [input, what] of Object.entries(names)) {
    if (emitter.input(Number(input)) !== undefined) throw new Unsupported(`its ${what} is used`);
  }
}

/** Contiguous [batch, rows, heads, size]. */
export function headsTogether({ buffer, kept }: Stored, { heads, rows, size }: HeadSizes): Heads {
  return { buffer, kept, heads, rows, size, batch: heads * rows * size, head: size, row: heads * size };
}

/** What is added to the scores, to which it broadcasts; to those of its `own` first keys alone where they are fewer. */
export function addedBias(bias: Value | undefined, scores: readonly number[], own = scores.at(-1)!): ScoreChange[] {
  if (bias === undefined) return [];
  const isShort = own < scores.at(-1)!;
  const strides = broadcastStrides(bias.shape, [...scores.slice(0, -1), own]);
  const added = (x: string, { b, h, i, j }: Place): string =>
    `(${x} + ${elementsOf('addend', bias).at(weightedSum([b, h, i, j], strides))})`;
  return [
    {
      parameters: parametersOf({ addend: bias }),
      score: (x, at) => (isShort ? `(${at.j} < ${own} ? ${added(x, at)} : ${x})` : added(x, at)),
    },
  ];
}
