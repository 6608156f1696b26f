/** Returns the array if it has room for `length` elements, else a larger copy, whose new elements are 0. */
export function grown<Column extends Int32Array<ArrayBuffer> | Float64Array<ArrayBuffer>>(
  array: Column,
  length: number,
): Column {
  if (array.length >= length) return array;
  const larger = new (array.constructor as new (length: number) => Column)(Math.max(length, array.length * 2));
  larger.set(array);
  return larger;
}

/** Removes the item's first occurrence. For short arrays: `splice` would allocate an array for what it removes. */
export function takeOut<Item>(items: Item[], item: Item): void {
  for (let at = items.indexOf(item); at < items.length - 1; at++) items[at] = items[at + 1]!;
  items.pop();
}
