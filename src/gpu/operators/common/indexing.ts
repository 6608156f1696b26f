/** Shapes, strides, and C expressions that make one index of another. All sizes are known when a kernel is made. */
import { Unsupported } from '../../../operators/index.ts';

/** The axis, counted from the front. @throws Unsupported if a tensor of this rank does not have it */
export function axisOf(axis: number, rank: number): number {
  const fromFront = axis < 0 ? axis + rank : axis;
  if (!Number.isInteger(axis) || fromFront < 0 || fromFront >= Math.max(rank, 1)) {
    throw new Unsupported(`axis ${axis} is outside of a tensor with ${rank} dimensions`);
  }
  return fromFront;
}

/** Elements from one index to the next along each axis, row-major. */
export function stridesOf(shape: readonly number[]): number[] {
  const strides = Array.from(shape, () => 1);
  for (let axis = shape.length - 2; axis >= 0; axis--) strides[axis] = strides[axis + 1]! * shape[axis + 1]!;
  return strides;
}

/** Strides that read a tensor of `shape` as one of `target`, by numpy's broadcasting: 0 along repeated axes. */
export function broadcastStrides(shape: readonly number[], target: readonly number[]): number[] {
  const strides = stridesOf(shape);
  const missing = target.length - shape.length;
  return target.map((size, axis) => {
    const own = shape[axis - missing];
    if (own === undefined || (own === 1 && size !== 1)) return 0;
    if (own !== size) throw new Unsupported(`[${shape.join(',')}] does not broadcast to [${target.join(',')}]`);
    return strides[axis - missing]!;
  });
}

/** One dimension of a loop over elements: its size, and the stride in each of several tensors. */
export interface Dimension {
  readonly size: number;
  readonly steps: readonly number[];
}

/**
 * The fewest dimensions that visit the same elements in the same order: drops those of size 1, and joins neighbours
 * that are contiguous in every tensor.
 */
export function collapse(sizes: readonly number[], ...strides: readonly (readonly number[])[]): Dimension[] {
  const collapsed: Dimension[] = [];
  for (const [axis, size] of sizes.entries()) {
    if (size === 1) continue;
    const steps = strides.map((of) => of[axis]!);
    const outer = collapsed.at(-1);
    if (outer !== undefined && outer.steps.every((step, index) => step === steps[index]! * size)) {
      collapsed[collapsed.length - 1] = { size: outer.size * size, steps };
    } else {
      collapsed.push({ size, steps });
    }
  }
  return collapsed;
}

/** The type for an index over `elements`: 32 bits if they suffice, since 64-bit division is several times slower. */
export const indexType = (elements: number): 'u32' | 'u64' => (elements < 2 ** 31 ? 'u32' : 'u64');

/**
 * C expressions of the coordinates of `index` in a tensor of these sizes, outermost first. Divisors are literals, which
 * the compiler turns into multiplications.
 */
export function coordinates(index: string, sizes: readonly number[]): string[] {
  const strides = stridesOf(sizes);
  return sizes.map((size, axis) => {
    if (size === 1) return '0';
    const stride = strides[axis]!;
    const divided = stride === 1 ? index : `${index} / ${stride}u`;
    const outermost = sizes.slice(0, axis).every((outer) => outer === 1);
    return outermost ? `(${divided})` : `(${divided} % ${size}u)`;
  });
}

/** C expression of the sum of coordinates times strides, without terms that are 0. */
export function weightedSum(terms: readonly string[], strides: readonly number[], start = 0): string {
  const parts = terms.flatMap((term, axis) => {
    const stride = strides[axis]!;
    if (stride === 0 || term === '0') return [];
    return [stride === 1 ? term : `${term} * ${stride}`];
  });
  if (start !== 0 || parts.length === 0) parts.push(String(start));
  return parts.join(' + ').replaceAll('+ -', '- ');
}

/** C expression of an element's index in a tensor of `shape` that broadcasts to `target`, from its index there. */
export function broadcastIndex(index: string, shape: readonly number[], target: readonly number[]): string {
  const dimensions = collapse(target, stridesOf(target), broadcastStrides(shape, target));
  const sizes = dimensions.map(({ size }) => size);
  return weightedSum(
    coordinates(index, sizes),
    dimensions.map(({ steps }) => steps[1]!),
  );
}
