/** Sets of batch sizes 0..max as bits, so that "add b to every size" is one shift. */

export function bitsetWords(max: number): number {
  return (max >>> 5) + 1;
}

export function hasBit(words: Uint32Array, bit: number): boolean {
  return (((words[bit >>> 5] ?? 0) >>> (bit & 31)) & 1) === 1;
}

export function setBit(words: Uint32Array, bit: number): void {
  words[bit >>> 5] = (words[bit >>> 5] ?? 0) | (1 << (bit & 31));
}

/** target |= source << shift. Bits beyond the last word are lost. */
export function orShifted(target: Uint32Array, source: Uint32Array, shift: number): void {
  const wordShift = shift >>> 5;
  const bitShift = shift & 31;
  for (let word = wordShift; word < target.length; word++) {
    const low = source[word - wordShift] ?? 0;
    // `x >>> 32` is `x` in JavaScript, so a shift by whole words has nothing to carry.
    const carried = bitShift === 0 ? 0 : (source[word - wordShift - 1] ?? 0) >>> (32 - bitShift);
    target[word] = (target[word] ?? 0) | (low << bitShift) | carried;
  }
}
