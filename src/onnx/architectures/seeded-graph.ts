import { elementCount } from '../../tensor/index.ts';
import { GraphBuilder, type SymbolicShape } from '../builder.ts';
import { seededWeights, type Distribution } from './seeded-weights.ts';

/** A graph with weights drawn from a seed, and layers that several architectures share. */
export class SeededGraph extends GraphBuilder {
  readonly #seed: number;
  #learnableCount = 0;

  constructor(name: string, seed: number) {
    super(name);
    this.#seed = seed;
  }

  /** Elements of all weights that training would change. */
  get learnableCount(): number {
    return this.#learnableCount;
  }

  /** Adds a weight drawn from a distribution. */
  seeded(name: string, shape: readonly number[], distribution: Distribution): string {
    this.#learnableCount += elementCount(shape);
    return this.#seeded(name, shape, distribution);
  }

  /** Adds a weight that concatenates the seeded weights of other names, in parts of equal size. */
  seededParts(name: string, shape: readonly number[], parts: readonly string[], distribution: Distribution): string {
    this.#learnableCount += elementCount(shape);
    const full: string = this.weight(name, shape, () => {
      const joined = new Float32Array(elementCount(shape));
      const size = joined.length / parts.length;
      const scope = full.slice(0, full.length - name.length);
      parts.forEach((part, index) => {
        joined.set(seededWeights(this.#seed, scope + part, size, distribution), index * size);
      });
      return joined;
    });
    return full;
  }

  /**
   * y = x W + b over the last dimension, for any rank; W is stored [in, out], as an export folds PyTorch's transpose.
   */
  linear(name: string, x: string, inSize: number, outSize: number): string {
    return this.scope(name, () => {
      const weight = this.seeded('weight', [inSize, outSize], { std: 1 / Math.sqrt(inSize) });
      const bias = this.seeded('bias', [outSize], { std: 0.02 });
      return this.node('Add', [this.node('MatMul', [x, weight]), bias]);
    });
  }

  /** y = x W^T + b of a matrix; W is stored [out, in], as in PyTorch. */
  gemm(name: string, x: string, inSize: number, outSize: number, gain = 1): string {
    return this.scope(name, () => {
      const weight = this.seeded('weight', [outSize, inSize], { std: Math.sqrt(gain / inSize) });
      const bias = this.seeded('bias', [outSize], { std: 0.02 });
      return this.node('Gemm', [x, weight, bias], { transB: 1 });
    });
  }

  /** Normalises over the last dimension. */
  layerNorm(name: string, x: string, size: number, epsilon: number): string {
    return this.scope(name, () => {
      const weight = this.seeded('weight', [size], { mean: 1, std: 0.1 });
      const bias = this.seeded('bias', [size], { std: 0.02 });
      return this.node('LayerNormalization', [x, weight, bias], { axis: -1, epsilon: { float: epsilon } });
    });
  }

  /**
   * BatchNormalization with running statistics near, but not at, mean 0 and variance 1: folding it into the convolution
   * wrongly changes the answer.
   */
  batchNorm(name: string, x: string, channels: number, epsilon: number, scale = 1): string {
    return this.scope(name, () => {
      const weight = this.seeded('weight', [channels], { mean: scale, std: 0.1 * scale });
      const bias = this.seeded('bias', [channels], { std: 0.1 });
      const mean = this.#seeded('running_mean', [channels], { std: 0.1 });
      const variance = this.#seeded('running_var', [channels], { mean: 1, std: 0.1 });
      return this.node('BatchNormalization', [x, weight, bias, mean, variance], { epsilon: { float: epsilon } });
    });
  }

  /** A two-dimensional convolution, by default without bias. */
  conv(
    name: string,
    x: string,
    inChannels: number,
    outChannels: number,
    options: {
      readonly kernel: number | readonly [height: number, width: number];
      readonly stride?: number;
      /** On both sides of each dimension. */
      readonly padding?: number | readonly [height: number, width: number];
      readonly groups?: number;
      readonly bias?: boolean;
      /** 2 keeps the variance after a rectifier (He et al. 2015), 1 without one. */
      readonly gain?: number;
    },
  ): string {
    const { kernel, stride = 1, padding = 0, groups = 1, bias = false, gain = 2 } = options;
    const [height, width] = typeof kernel === 'number' ? [kernel, kernel] : kernel;
    const [padHeight, padWidth] = typeof padding === 'number' ? [padding, padding] : padding;
    const fanIn = (inChannels / groups) * height * width;
    return this.scope(name, () => {
      const inputs = [
        x,
        this.seeded('weight', [outChannels, inChannels / groups, height, width], { std: Math.sqrt(gain / fanIn) }),
      ];
      if (bias) inputs.push(this.seeded('bias', [outChannels], { std: 0.02 }));
      return this.node('Conv', inputs, {
        dilations: [1, 1],
        group: groups,
        kernel_shape: [height, width],
        pads: [padHeight, padWidth, padHeight, padWidth],
        strides: [stride, stride],
      });
    });
  }

  /** The last layers of a network for images: global mean, then a matrix to the classes. */
  classifier(name: string, x: string, channels: number, classes: number): string {
    const pooled = this.node('GlobalAveragePool', [x]);
    return this.gemm(name, this.node('Flatten', [pooled], { axis: 1 }), channels, classes);
  }

  #seeded(name: string, shape: readonly number[], distribution: Distribution): string {
    const full: string = this.weight(name, shape, () =>
      seededWeights(this.#seed, full, elementCount(shape), distribution),
    );
    return full;
  }
}

/** A fixed size, or for size 0 the name of an open dimension. */
export function dimension(size: number, name: string): SymbolicShape[number] {
  return size === 0 ? name : size;
}
