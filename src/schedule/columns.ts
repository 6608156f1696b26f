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

/** For each function a set of GPUs, as bits, so that finding a function need not look at every GPU. */
export class GpuSets {
  readonly words: number;
  #bits = new Int32Array(64);

  constructor(gpuCount: number) {
    this.words = Math.max(1, Math.ceil(gpuCount / 32));
  }

  grow(functionCount: number): void {
    this.#bits = grownInts(this.#bits, functionCount * this.words);
  }

  add(functionIndex: number, gpu: number): void {
    this.#bits[functionIndex * this.words + (gpu >> 5)]! |= 1 << (gpu & 31);
  }

  remove(functionIndex: number, gpu: number): void {
    this.#bits[functionIndex * this.words + (gpu >> 5)]! &= ~(1 << (gpu & 31));
  }

  /** GPUs 32 times the word and on, the lowest bit first. */
  word(functionIndex: number, word: number): number {
    return this.#bits[functionIndex * this.words + word]!;
  }

  /** The GPUs that are in the function's set here or in the other `GpuSets`, the lowest first. */
  union(functionIndex: number, other: GpuSets): number[] {
    const gpus: number[] = [];
    for (let word = 0; word < this.words; word++) {
      let bits = this.word(functionIndex, word) | other.word(functionIndex, word);
      for (; bits !== 0; bits &= bits - 1) gpus.push(32 * word + 31 - Math.clz32(bits & -bits));
    }
    return gpus;
  }
}
