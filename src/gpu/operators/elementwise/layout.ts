/** How an elementwise kernel walks its operands: as few dimensions as broadcasting leaves. */

export interface OperandWalk {
  /** Elements from one position to the next, by collapsed dimension; 0: the operand is repeated along it. */
  readonly strides: readonly number[];
}

export interface Walk {
  /** Sizes of the collapsed dimensions, outermost first; none of size 1. */
  readonly sizes: readonly number[];
  readonly operands: readonly OperandWalk[];
}

/** Strides of a contiguous operand broadcast to `shape` (ONNX, "Multidirectional Broadcasting"). */
export function broadcastStrides(operand: readonly number[], shape: readonly number[]): number[] {
  const strides = shape.map(() => 0);
  let stride = 1;
  for (let axis = operand.length - 1; axis >= 0; axis--) {
    const place = shape.length - operand.length + axis;
    const size = operand[axis]!;
    if (size !== 1) {
      if (size !== shape[place]) {
        throw new RangeError(`an operand of shape [${operand.join(',')}] does not broadcast to [${shape.join(',')}]`);
      }
      strides[place] = stride;
    }
    stride *= size;
  }
  return strides;
}

/** Joins neighbouring dimensions that every operand walks through as through one. */
export function walkOf(shape: readonly number[], operands: readonly (readonly number[])[]): Walk {
  const all = operands.map((operand) => broadcastStrides(operand, shape));
  const sizes: number[] = [];
  const strides: number[][] = operands.map(() => []);
  for (const [axis, size] of shape.entries()) {
    if (size === 1) continue;
    const last = sizes.length - 1;
    const joins = last >= 0 && all.every((own, operand) => strides[operand]![last] === own[axis]! * size);
    if (joins) {
      sizes[last]! *= size;
      for (const [operand, own] of all.entries()) strides[operand]![last] = own[axis]!;
    } else {
      sizes.push(size);
      for (const [operand, own] of all.entries()) strides[operand]!.push(own[axis]!);
    }
  }
  return { sizes, operands: strides.map((own) => ({ strides: own })) };
}
