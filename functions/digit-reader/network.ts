/**
 * The convolutional network and its back-propagation, one image at a time: twice a 3x3 convolution, ReLU and 2x2
 * maximum, then one dense layer. Images are [channel][row][column].
 */
import { Adam, parameter, type Parameter } from '../_training/adam.ts';
import type { SeededRandom } from '../_training/random.ts';
import { inputSize } from './image.ts';

export const classCount = 10;
export const channels = [1, 8, 16] as const;
const kernel = 3;
const pooledSize = inputSize / 4;

/** 3x3 convolution with a border of zeros, ReLU, and the maximum of each 2x2 square. */
class ConvolutionLayer {
  readonly weights: Parameter;
  readonly bias: Parameter;
  readonly output: Float32Array;
  /** Of the layer's input, after {@link backward}. */
  readonly inputGradient: Float32Array;
  readonly #inputs: number;
  readonly #outputs: number;
  readonly #size: number;
  /** The input with its border. */
  readonly #padded: Float32Array;
  readonly #paddedGradient: Float32Array;
  readonly #plane: Float32Array;
  /** For each output the position of its maximum in the plane, or -1 where ReLU cut it off. */
  readonly #chosen: Int32Array;

  constructor(inputs: number, outputs: number, size: number, random: SeededRandom) {
    this.#inputs = inputs;
    this.#outputs = outputs;
    this.#size = size;
    const fanIn = inputs * kernel * kernel;
    this.weights = parameter(normalWeights(outputs * fanIn, Math.sqrt(2 / fanIn), random));
    this.bias = parameter(new Float32Array(outputs));
    this.#padded = new Float32Array(inputs * (size + 2) * (size + 2));
    this.#paddedGradient = new Float32Array(this.#padded.length);
    this.#plane = new Float32Array(size * size);
    this.output = new Float32Array((outputs * size * size) / 4);
    this.#chosen = new Int32Array(this.output.length);
    this.inputGradient = new Float32Array(inputs * size * size);
  }

  forward(input: Float32Array): Float32Array {
    const size = this.#size;
    const stride = size + 2;
    const padded = this.#padded;
    for (let channel = 0; channel < this.#inputs; channel++) {
      for (let y = 0; y < size; y++) {
        const row = (channel * size + y) * size;
        padded.set(input.subarray(row, row + size), (channel * stride + y + 1) * stride + 1);
      }
    }
    const plane = this.#plane;
    const weights = this.weights.weights;
    for (let out = 0; out < this.#outputs; out++) {
      plane.fill(this.bias.weights[out]!);
      for (let channel = 0; channel < this.#inputs; channel++) {
        const at = (out * this.#inputs + channel) * 9;
        const w0 = weights[at]!;
        const w1 = weights[at + 1]!;
        const w2 = weights[at + 2]!;
        const w3 = weights[at + 3]!;
        const w4 = weights[at + 4]!;
        const w5 = weights[at + 5]!;
        const w6 = weights[at + 6]!;
        const w7 = weights[at + 7]!;
        const w8 = weights[at + 8]!;
        for (let y = 0; y < size; y++) {
          const above = (channel * stride + y) * stride;
          const middle = above + stride;
          const below = middle + stride;
          for (let x = 0; x < size; x++) {
            plane[y * size + x]! +=
              w0 * padded[above + x]! +
              w1 * padded[above + x + 1]! +
              w2 * padded[above + x + 2]! +
              w3 * padded[middle + x]! +
              w4 * padded[middle + x + 1]! +
              w5 * padded[middle + x + 2]! +
              w6 * padded[below + x]! +
              w7 * padded[below + x + 1]! +
              w8 * padded[below + x + 2]!;
          }
        }
      }
      this.#pool(out);
    }
    return this.output;
  }

  #pool(out: number): void {
    const size = this.#size;
    const half = size / 2;
    for (let y = 0; y < half; y++) {
      for (let x = 0; x < half; x++) {
        const corner = 2 * y * size + 2 * x;
        let best = 0;
        let chosen = -1;
        for (const at of [corner, corner + 1, corner + size, corner + size + 1]) {
          const value = this.#plane[at]!;
          if (value > best) {
            best = value;
            chosen = at;
          }
        }
        const index = (out * half + y) * half + x;
        this.output[index] = best;
        this.#chosen[index] = chosen;
      }
    }
  }

  /** Adds to the gradients of the weights; only the positions that the maximum chose carry any. */
  backward(outputGradient: Float32Array, needsInputGradient: boolean): void {
    const size = this.#size;
    const stride = size + 2;
    const pooled = (size * size) / 4;
    const weights = this.weights.weights;
    const gradients = this.weights.gradients;
    this.#paddedGradient.fill(0);
    for (let out = 0; out < this.#outputs; out++) {
      for (let index = out * pooled; index < (out + 1) * pooled; index++) {
        const chosen = this.#chosen[index]!;
        if (chosen < 0) continue;
        const gradient = outputGradient[index]!;
        this.bias.gradients[out]! += gradient;
        const y = Math.floor(chosen / size);
        const x = chosen - y * size;
        for (let channel = 0; channel < this.#inputs; channel++) {
          const at = (out * this.#inputs + channel) * 9;
          for (let tap = 0; tap < 9; tap++) {
            const from = (channel * stride + y + Math.floor(tap / 3)) * stride + x + (tap % 3);
            gradients[at + tap]! += gradient * this.#padded[from]!;
            if (needsInputGradient) this.#paddedGradient[from]! += gradient * weights[at + tap]!;
          }
        }
      }
    }
    if (!needsInputGradient) return;
    for (let channel = 0; channel < this.#inputs; channel++) {
      for (let y = 0; y < size; y++) {
        const row = (channel * stride + y + 1) * stride + 1;
        this.inputGradient.set(this.#paddedGradient.subarray(row, row + size), (channel * size + y) * size);
      }
    }
  }
}

export class DigitNetwork {
  readonly first: ConvolutionLayer;
  readonly second: ConvolutionLayer;
  /** [class][feature] */
  readonly dense: Parameter;
  readonly denseBias: Parameter;
  readonly #adam: Adam;
  readonly #probabilities = new Float64Array(classCount);
  readonly #featureGradient: Float32Array;

  constructor(random: SeededRandom) {
    this.first = new ConvolutionLayer(channels[0], channels[1], inputSize, random);
    this.second = new ConvolutionLayer(channels[1], channels[2], inputSize / 2, random);
    const features = channels[2] * pooledSize * pooledSize;
    this.dense = parameter(normalWeights(classCount * features, Math.sqrt(1 / features), random));
    this.denseBias = parameter(new Float32Array(classCount));
    this.#featureGradient = new Float32Array(features);
    this.#adam = new Adam([
      this.first.weights,
      this.first.bias,
      this.second.weights,
      this.second.bias,
      this.dense,
      this.denseBias,
    ]);
  }

  /** Probability of each digit; the array is used again by the next call. */
  forward(image: Float32Array): Float64Array {
    const features = this.second.forward(this.first.forward(image));
    const scores = this.#probabilities;
    for (let digit = 0; digit < classCount; digit++) {
      let sum = this.denseBias.weights[digit]!;
      const row = digit * features.length;
      for (let index = 0; index < features.length; index++) sum += this.dense.weights[row + index]! * features[index]!;
      scores[digit] = sum;
    }
    const most = Math.max(...scores);
    let total = 0;
    for (let digit = 0; digit < classCount; digit++) total += scores[digit] = Math.exp(scores[digit]! - most);
    for (let digit = 0; digit < classCount; digit++) scores[digit]! /= total;
    return scores;
  }

  /** Adds the gradient of the cross-entropy for one image and returns its loss. */
  learn(image: Float32Array, digit: number): number {
    const probabilities = this.forward(image);
    const loss = -Math.log(probabilities[digit]!);
    const features = this.second.output;
    this.#featureGradient.fill(0);
    for (let column = 0; column < classCount; column++) {
      const gradient = probabilities[column]! - (column === digit ? 1 : 0);
      this.denseBias.gradients[column]! += gradient;
      const row = column * features.length;
      for (let index = 0; index < features.length; index++) {
        this.dense.gradients[row + index]! += gradient * features[index]!;
        this.#featureGradient[index]! += gradient * this.dense.weights[row + index]!;
      }
    }
    this.second.backward(this.#featureGradient, true);
    this.first.backward(this.second.inputGradient, false);
    return loss;
  }

  step(learningRate: number, batchSize: number): void {
    this.#adam.step(learningRate, batchSize);
  }
}

function normalWeights(count: number, deviation: number, random: SeededRandom): Float32Array {
  return Float32Array.from({ length: count }, () => deviation * random.normal());
}
