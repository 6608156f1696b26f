/** Sizes of a tensor's dimensions, outermost first. */
export type Dims = readonly number[];

/**
 * What is known about a value: its dimensions, and its elements if they are few whole numbers (shapes, axes, indices).
 */
export interface Known {
  readonly dims: Dims;
  readonly ints?: readonly number[] | undefined;
}

/** The dimensions of an element-wise result (ONNX, "Multidirectional Broadcasting"); undefined when they do not fit. */
export function broadcast(shapes: readonly Dims[]): Dims | undefined {
  const rank = Math.max(0, ...shapes.map((dims) => dims.length));
  const result: number[] = [];
  for (let place = 0; place < rank; place++) {
    let size = 1;
    for (const dims of shapes) {
      const own = dims[place - rank + dims.length] ?? 1;
      if (own === 1) continue;
      if (size !== 1 && size !== own) return undefined;
      size = own;
    }
    result.push(size);
  }
  return result;
}

const clamp = (value: number, low: number, high: number): number => Math.min(high, Math.max(low, value));

/** The largest number of 32 or 64 bits as an end means 'to the end'. */
const isUnlimited = (end: number): boolean => end === 2 ** 31 - 1 || end >= 2 ** 63 - 1;

/**
 * A slice of an axis as in ONNX Runtime: its first index and its number of elements. Bounds beyond the axis are
 * clamped.
 */
export function sliceRange(size: number, start: number, end: number, step: number): { from: number; count: number } {
  if (step === 0) return { from: 0, count: 0 };
  const fromFront = (value: number) => (value < 0 ? value + size : value);
  if (step > 0) {
    const from = clamp(fromFront(start), 0, size);
    const to = clamp(fromFront(end), 0, size);
    return { from, count: Math.max(0, Math.ceil((to - from) / step)) };
  }
  // Unlike numpy, ONNX moves a start in front of the first element to that element.
  const from = clamp(fromFront(start), 0, size - 1);
  const to = isUnlimited(end) ? -1 : clamp(fromFront(end), -1, size - 1);
  return { from, count: Math.max(0, Math.ceil((to - from) / step)) };
}
