/** The array, or a larger one with the same beginning. */
export function grownInts(array: Int32Array<ArrayBuffer>, length: number, fill = 0): Int32Array<ArrayBuffer> {
  if (array.length >= length) return array;
  const grown = new Int32Array(Math.max(length, array.length * 2));
  if (fill !== 0) grown.fill(fill);
  grown.set(array);
  return grown;
}

/** The same for floats. */
export function grownFloats(array: Float64Array<ArrayBuffer>, length: number, fill = 0): Float64Array<ArrayBuffer> {
  if (array.length >= length) return array;
  const grown = new Float64Array(Math.max(length, array.length * 2));
  if (fill !== 0) grown.fill(fill);
  grown.set(array);
  return grown;
}

/** Removes the first occurrence. For short arrays: `splice` would allocate an array for what it removes. */
export function takeOut<Item>(items: Item[], item: Item): void {
  for (let at = items.indexOf(item); at < items.length - 1; at++) items[at] = items[at + 1]!;
  items.pop();
}
