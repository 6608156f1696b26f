import type { GraphProfile, OperatorEdge, OperatorProfile } from '../../src/profile/index.ts';

/** An LSTM with the parameters of Chrion's Table 6. */
export interface LstmShape {
  readonly layers: number;
  readonly batch: number;
  /** Width of input, state and output. */
  readonly ioSize: number;
  /** Steps of the input. */
  readonly sequence: number;
}

/**
 * Bytes of the GPU's own software in Chrion's measurements, independent of the model: the GPU's memory in Table 6
 * extrapolated to no cells. It is not part of a plan's `gpuBytes`.
 */
export const lstmContextBytes = 345e6;

/**
 * Chrion's unrolled LSTM graph with one operator per layer and step, with times and bytes fitted to the GPU and CPU rows
 * of its Table 6 (GTX 1080 Ti, Xeon E5 with 12 cores). Estimated, not measured:
 *
 * - a cell takes 51.2 us on the GPU whatever its size, since launching dominates;
 * - a cell on one of k cores takes (51 + 6.8 batch/8 (io/64)^2) us of work times 3 (1 + (k/3)^4)^(1/4): cores compete for
 *   memory and cache, so that more than 3 to 5 of them add little;
 * - a cell needs 0.995 MB of GPU memory (1.315 MB at an I/O size of 128) and its weights, 4 io x 2 io floats;
 * - a copy between host and GPU takes 60 us and hardly depends on its size.
 *
 * @param cores number of cores to give times for
 */
export function lstmCells({ layers, batch, ioSize, sequence }: LstmShape, cores = 8): GraphProfile {
  const stateBytes = batch * ioSize * 4;
  const workMs = (51 + 6.8 * (batch / 8) * (ioSize / 64) ** 2) / 1000;
  const saturation = 3;
  const cpu = Array.from(
    { length: cores },
    (_, index) => workMs * saturation * (1 + ((index + 1) / saturation) ** 4) ** 0.25,
  );
  const output = 2 * stateBytes;
  const bytes = {
    input: 3 * stateBytes,
    output,
    ephemeral: (ioSize >= 128 ? 1.315e6 : 0.995e6) - output,
    weights: 4 * ioSize * 2 * ioSize * 4,
  };
  const nodes: OperatorProfile[] = [];
  const edges: OperatorEdge[] = [];
  for (let layer = 0; layer < layers; layer++) {
    for (let step = 0; step < sequence; step++) {
      const position = layer * sequence + step;
      nodes.push({ name: `layer${layer}/step${step}`, gpu: 0.0512, cpu, bytes });
      // Hidden and cell state go to the next step, only the hidden state to the next layer.
      if (step + 1 < sequence) edges.push([position, position + 1, 2 * stateBytes]);
      if (layer + 1 < layers) edges.push([position, position + sequence, stateBytes]);
    }
  }
  return { unit: 'ms', nodes, edges, bandwidth: 11.05, latency: 0.06 };
}
