/** Later checks: after a GPU has answered, ONNX Runtime runs a few of the calls too. */
import { keepTensors, type Tensor } from '../../tensor/index.ts';

/** A call with the GPU's answer, so that a check need not run it on the GPU again. */
export interface AnsweredCall {
  readonly key: string;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
}

export interface RechecksOptions {
  /** On average one call in `every` is checked; 0: none. */
  readonly every: number;
  /**
   * In [0, 1). With a counter instead, clients that take turns could have the same client's calls checked each time.
   */
  readonly random?: () => number;
  readonly check: (call: AnsweredCall) => Promise<void>;
}

/**
 * Chooses calls to check, one at a time. During a check no other call is chosen, so that checks do not queue up and
 * hold tensors. A check that throws is ignored.
 */
export class Rechecks {
  readonly #options: RechecksOptions;
  #running: Promise<void> | undefined;

  constructor(options: RechecksOptions) {
    this.#options = options;
  }

  /** To be called after the answer was sent. */
  consider(call: AnsweredCall): void {
    const { every, random = Math.random, check } = this.#options;
    if (every === 0 || this.#running !== undefined || random() * every >= 1) return;
    keepTensors(call.inputs);
    keepTensors(call.outputs);
    this.#running = check(call)
      .catch(() => undefined)
      .finally(() => {
        this.#running = undefined;
      });
  }

  /** Resolves when no check runs. */
  async settled(): Promise<void> {
    await this.#running;
  }
}
