/** Adam (Kingma and Ba, 2015, algorithm 1) over a set of weights that are trained together. */
export interface Parameter {
  readonly weights: Float32Array;
  /** Summed over a batch by the caller; {@link Adam.step} clears it. */
  readonly gradients: Float32Array;
}

export function parameter(weights: Float32Array): Parameter {
  return { weights, gradients: new Float32Array(weights.length) };
}

const meanDecay = 0.9;
const squareDecay = 0.999;
const epsilon = 1e-8;

export class Adam {
  readonly #parameters: readonly { parameter: Parameter; means: Float32Array; squares: Float32Array }[];
  #steps = 0;

  constructor(parameters: readonly Parameter[]) {
    this.#parameters = parameters.map((parameter) => ({
      parameter,
      means: new Float32Array(parameter.weights.length),
      squares: new Float32Array(parameter.weights.length),
    }));
  }

  /** One step down the mean gradient of `batchSize` samples; the gradient's norm is cut to `normMax`. */
  step(learningRate: number, batchSize: number, normMax = Number.POSITIVE_INFINITY): void {
    this.#steps++;
    let squaredNorm = 0;
    for (const { parameter } of this.#parameters) {
      for (const gradient of parameter.gradients) squaredNorm += gradient * gradient;
    }
    const scale = Math.min(1, (normMax * batchSize) / Math.sqrt(squaredNorm)) / batchSize;
    const rate = (learningRate * Math.sqrt(1 - squareDecay ** this.#steps)) / (1 - meanDecay ** this.#steps);
    for (const { parameter, means, squares } of this.#parameters) {
      const { weights, gradients } = parameter;
      for (let index = 0; index < weights.length; index++) {
        const gradient = (gradients[index] ?? 0) * scale;
        const mean = meanDecay * (means[index] ?? 0) + (1 - meanDecay) * gradient;
        const square = squareDecay * (squares[index] ?? 0) + (1 - squareDecay) * gradient * gradient;
        means[index] = mean;
        squares[index] = square;
        weights[index] = (weights[index] ?? 0) - (rate * mean) / (Math.sqrt(square) + epsilon);
        gradients[index] = 0;
      }
    }
  }
}
