/** Types that describe attention to core.ts: heads by strides, and changes of their scores. */
import { floats, requireDatatype } from '../../../operators/index.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import { elementsOf, parametersOf, type Stored } from '../common/elements.ts';
import { broadcastStrides, weightedSum } from '../common/indexing.ts';
import type { Parameter } from '../common/launching.ts';
import type { Emitter, Value } from '../types.ts';

/** Heads of a batch item, rows of a head, elements of a row. */
export interface HeadSizes {
  readonly heads: number;
  readonly rows: number;
  readonly size: number;
}

/** A tensor's heads, with strides in elements from item to item, head to head and row to row. */
export interface Heads extends Stored, HeadSizes {
  readonly batch: number;
  readonly head: number;
  readonly row: number;
}

/** C expressions of a score's item, head, query and key, and of the score of a hidden key. */
export interface Place {
  readonly b: string;
  readonly h: string;
  readonly i: string;
  readonly j: string;
  readonly hidden: string;
}

/** A change of the scores, a mask for example: a C expression of the new score. */
export interface ScoreChange {
  readonly parameters: readonly Parameter[];
  readonly score: (x: string, at: Place) => string;
}

export interface Attention {
  readonly batch: number;
  readonly q: Heads;
  /** With fewer heads than `q`, each is shared by several heads of `q`. */
  readonly k: Heads;
  readonly v: Heads;
  readonly y: Heads;
  readonly scale: number;
  /** Applied one after the other. */
  readonly changes: readonly ScoreChange[];
  /**
   * A further output [batch, heads, queries, keys]: the scores after the first `after` changes, or after the softmax.
   */
  readonly scores?: { readonly value: Value; readonly after: number | 'softmax' } | undefined;
}

/** C expression over b, h and r of the index of a row's first element. */
export const rowAt = (of: Heads): string => `b * ${of.batch} + h * ${of.head} + r * ${of.row}`;

/** Contiguous [batch, heads, rows, size]. */
export function headsApart({ buffer, storedType }: Stored, { heads, rows, size }: HeadSizes): Heads {
  return { buffer, storedType, heads, rows, size, batch: heads * rows * size, head: rows * size, row: size };
}

/** The same in scratch memory. */
export function scratchHeads(emitter: Emitter, storedType: DataType, batch: number, sizes: HeadSizes): Heads {
  const buffer = emitter.scratch(batch * sizes.heads * sizes.rows * sizes.size * elementBytes[storedType]);
  return headsApart({ buffer, storedType }, sizes);
}

/** Contiguous [batch, rows, heads, size]. */
export function headsTogether({ buffer, storedType }: Stored, { heads, rows, size }: HeadSizes): Heads {
  return { buffer, storedType, heads, rows, size, batch: heads * rows * size, head: size, row: heads * size };
}

/**
 * A mask that broadcasts to the scores: added, or of BOOL, which hides. `behind`: whether it hides the keys behind its
 * own, or leaves their scores as they are.
 */
export function maskOf(mask: Value, scores: readonly number[], behind: 'hidden' | 'kept'): ScoreChange {
  requireDatatype(mask, [...floats, 'BOOL']);
  const keys = scores.at(-1)!;
  const own = mask.shape.at(-1) ?? 1;
  // One value for all keys hides none.
  const isShort = own < keys && (own > 1 || behind === 'kept');
  const strides = broadcastStrides(mask.shape, isShort ? [...scores.slice(0, -1), own] : scores);
  return {
    parameters: parametersOf({ mask }),
    score: (x, { b, h, i, j, hidden }) => {
      const read = elementsOf('mask', mask).at(weightedSum([b, h, i, j], strides));
      const masked = mask.datatype === 'BOOL' ? `(${read} ? ${x} : ${hidden})` : `(${x} + ${read})`;
      return isShort ? `(${j} < ${own} ? ${masked} : ${behind === 'hidden' ? hidden : x})` : masked;
    },
  };
}
