/**
 * Weights as training leaves them, drawn by a seed: each row of a matrix is normally distributed around zero, and the
 * rows' standard deviations are log-normal around the layer's (0.3 of a natural logarithm), since channels differ.
 */
import { singlesToBf16, singlesToFp16 } from '../../src/tensor/index.ts';
import { mix32 } from '../../src/tools/index.ts';

export interface TrainedLike {
  readonly datatype: 'FP32' | 'BF16' | 'FP16';
  readonly elements: number;
  /** Of the layer. */
  readonly deviation: number;
  readonly seed: number;
  /** Default: 512. */
  readonly rowElements?: number;
}

const rowSpread = 0.3;

/** A pair of normally distributed numbers (Box and Muller, 1958). */
function normalPair(seed: number, index: number): readonly [number, number] {
  const radius = Math.sqrt(-2 * Math.log((mix32(seed ^ mix32(2 * index)) + 1) / 2 ** 32));
  const angle = (2 * Math.PI * mix32(seed ^ mix32(2 * index + 1))) / 2 ** 32;
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
}

export function trainedLike({
  datatype,
  elements,
  deviation,
  seed,
  rowElements = 512,
}: TrainedLike): Uint8Array<ArrayBuffer> {
  const values = new Float32Array(elements);
  const rowSeed = mix32(seed ^ 0x5bd1e995);
  for (let first = 0, row = 0; first < elements; first += rowElements, row++) {
    const scale = deviation * Math.exp(rowSpread * normalPair(rowSeed, row)[0]);
    const last = Math.min(elements, first + rowElements);
    for (let index = first; index < last; index += 2) {
      const [one, other] = normalPair(seed, index);
      values[index] = scale * one;
      if (index + 1 < last) values[index + 1] = scale * other;
    }
  }
  if (datatype === 'FP32') return new Uint8Array(values.buffer);
  const narrow = new Uint16Array(elements);
  (datatype === 'BF16' ? singlesToBf16 : singlesToFp16)(new Uint32Array(values.buffer), narrow);
  return new Uint8Array(narrow.buffer);
}
