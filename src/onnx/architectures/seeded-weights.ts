/**
 * Weights that depend only on the seed, the weight's name and the element's index: they can be made in any order, and a
 * model is the same on every machine.
 */

/** Bell-shaped (the sum of two uniform variables) around `mean`, within mean +/- sqrt(6) x std. */
export interface Distribution {
  readonly mean?: number;
  readonly std: number;
}

/** The first `count` elements of the weight `name` for `seed`. */
export function seededWeights(
  seed: number,
  name: string,
  count: number,
  { mean = 0, std }: Distribution,
): Float32Array {
  const [first, second] = keysOf(seed, name);
  const values = new Float32Array(count);
  // The sum of two 16-bit halves is triangular on 0..131070, and a triangle of half-width w has the std w / sqrt(6).
  const scale = (std * Math.sqrt(6)) / 65_536;
  for (let index = 0; index < count; index++) {
    // A counter through the finaliser of MurmurHash3. The second key enters between its rounds: as offsets of the
    // counter alone, two keys would give two windows on one sequence, and large models would repeat weights.
    let bits = (Math.imul(index, 0x9e3779b1) + first) | 0;
    bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b) ^ second;
    bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
    bits ^= bits >>> 16;
    values[index] = mean + ((bits & 0xffff) + (bits >>> 16) - 65_535) * scale;
  }
  return values;
}

/** Two 32-bit keys: FNV-1a over the seed's digits and the name, from two starts. */
function keysOf(seed: number, name: string): [first: number, second: number] {
  const text = Buffer.from(`${seed}\0${name}`, 'utf8');
  let first = 0x811c9dc5;
  let second = 0x2f0b4c47;
  for (const byte of text) {
    first = Math.imul(first ^ byte, 0x01000193);
    second = Math.imul(second ^ byte ^ (first >>> 11), 0x01000193);
  }
  return [first, second];
}
