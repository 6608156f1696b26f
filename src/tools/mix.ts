/** One step of a 32-bit mix (the finaliser of MurmurHash3): neighbouring numbers end far apart. */
export function mix32(value: number): number {
  let mixed = value | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** Pseudorandom numbers in [0, 1), the same for each seed. */
export function randomOf(seed: number): () => number {
  let place = mix32(seed);
  return () => mix32(place++) / 2 ** 32;
}
