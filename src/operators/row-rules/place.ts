/** The place of a batch's rows in a tensor. */
import { elementCount } from '../../tensor/index.ts';

/** A tensor's shapes in two programs of one model: one for `few` rows, one for `many`. */
export interface Sizes {
  readonly few: readonly number[];
  readonly many: readonly number[];
}

export interface RowCounts {
  readonly few: number;
  readonly many: number;
}

/**
 * Rows are along one axis, whose size is `before` x rows x the rest. Example: 8 texts of 16 tokens in a matrix [128,
 * 768] are along axis 0, with `before` 1.
 */
export interface Place {
  readonly axis: number;
  readonly before: number;
}

/** The graph does not show rows to be independent. The message says which node mixes rows, or what is unknown. */
export class RowsMeet extends Error {
  override readonly name = 'RowsMeet';
  /** Whether a node is known to mix rows; otherwise the rules cannot follow them. */
  readonly isShown: boolean;

  constructor(message: string, isShown = false) {
    super(message);
    this.isShown = isShown;
  }
}

/** `outer` of a tensor whose memory is [outer, rows, ...]: the product of all sizes before the rows. */
export const outerAt = (shape: readonly number[], { axis, before }: Place): number =>
  elementCount(shape.slice(0, axis)) * before;

export function placeIn(shape: readonly number[], outer: number, rows: number): Place | undefined {
  let behind = 1;
  for (const [axis, size] of shape.entries()) {
    if (behind * size > outer) {
      const before = outer / behind;
      return Number.isInteger(before) && size % (before * rows) === 0 ? { axis, before } : undefined;
    }
    behind *= size;
  }
  return undefined;
}

/** The place of the rows in a tensor whose memory is [outer, rows, ...] in both programs. @throws RowsMeet */
export function placeOf({ few, many }: Sizes, outer: number, counts: RowCounts): Place {
  const [own, other] = [placeIn(few, outer, counts.few), placeIn(many, outer, counts.many)];
  const fits =
    own !== undefined &&
    other !== undefined &&
    own.axis === other.axis &&
    own.before === other.before &&
    few.length === many.length &&
    few.every((size, axis) =>
      axis === own.axis ? size / counts.few === many[axis]! / counts.many : size === many[axis],
    );
  if (!fits) throw new RowsMeet(`no axis of [${few.join(',')}] holds the rows`);
  return own;
}

/** The only axis whose sizes differ; undefined if none or several do. */
export function differingAxis({ few, many }: Sizes): number | undefined {
  if (few.length !== many.length) return undefined;
  const axes = few.flatMap((size, axis) => (size === many[axis] ? [] : [axis]));
  return axes.length === 1 ? axes[0] : undefined;
}
