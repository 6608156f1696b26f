/** POST a JPEG and get `{"label": "red", "probability": 0.99}`. */
import type { HandlerCall, HandlerTensor } from 'turntable';
import { decode } from 'jpeg-js';

const size = 32;
const labels = ['red', 'green', 'blue', 'grey'];
/** Of the three channels, for values from 0 to 1. */
const mean = [0.5, 0.5, 0.5];
const deviation = [0.5, 0.5, 0.5];

export function preprocess({ body }: HandlerCall): HandlerTensor[] {
  const pixels = pixelsOf(body);
  const data = new Float32Array(3 * size * size);
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const [r, g, b] = averageOf(pixels, x, y);
      for (const [channel, value] of [r, g, b].entries()) {
        data[(channel * size + y) * size + x] = (value / 255 - mean[channel]!) / deviation[channel]!;
      }
    }
  }
  return [{ name: 'pixels', datatype: 'FP32', shape: [1, 3, size, size], data }];
}

export function postprocess(tensors: readonly HandlerTensor[]): { label: string; probability: number } {
  const probabilities = tensors[0]?.data as Float32Array;
  const probability = Math.max(...probabilities);
  return { label: labels[probabilities.indexOf(probability)]!, probability: Math.round(probability * 1000) / 1000 };
}

interface Pixels {
  readonly width: number;
  readonly height: number;
  /** Four bytes each. */
  readonly data: Uint8Array;
}

function pixelsOf(body: Uint8Array): Pixels {
  try {
    // A small file may claim to be a huge picture.
    return decode(body, { useTArray: true, maxResolutionInMP: 50, maxMemoryUsageInMB: 512 });
  } catch (error) {
    throw Object.assign(new Error(`the body is not a JPEG: ${(error as Error).message}`), { status: 400 });
  }
}

/** The mean colour of what one pixel of the input covers of the largest square in the middle. */
function averageOf({ width, height, data }: Pixels, x: number, y: number): [r: number, g: number, b: number] {
  const side = Math.min(width, height);
  const [left, top] = [(width - side) / 2, (height - side) / 2];
  const begin = (at: number, offset: number): number => Math.floor(offset + (at * side) / size);
  const end = (at: number, offset: number): number => Math.max(begin(at, offset) + 1, begin(at + 1, offset));
  const sums: [number, number, number] = [0, 0, 0];
  let count = 0;
  for (let row = begin(y, top); row < end(y, top); row++) {
    for (let column = begin(x, left); column < end(x, left); column++) {
      const at = 4 * (row * width + column);
      for (const channel of [0, 1, 2] as const) sums[channel] += data[at + channel] ?? 0;
      count++;
    }
  }
  return [sums[0] / count, sums[1] / count, sums[2] / count];
}
