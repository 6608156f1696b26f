/** Later checks: of the calls that a GPU has answered, a few are run by ONNX Runtime too, behind the answer. */
import type { Tensor } from '../../tensor/index.ts';

/** What a check needs to know: nothing runs on the GPU again. */
export interface AnsweredCall {
  readonly key: string;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
}

export interface RechecksOptions {
  /** One of so many calls; 0: none. */
  readonly every: number;
  /** In [0, 1). Drawn and not counted: clients that take turns would else always meet the same ones. */
  readonly random?: () => number;
  readonly check: (call: AnsweredCall) => Promise<void>;
}

/**
 * Chooses calls to check, one at a time: what is chosen while another is checked is dropped, so that checks never queue
 * up, and no tensors are kept for them. Nobody waits for a check; one that fails is as if it had not been chosen.
 */
export class Rechecks {
  readonly #options: RechecksOptions;
  #running: Promise<void> | undefined;

  constructor(options: RechecksOptions) {
    this.#options = options;
  }

  /** After the answer has gone out. */
  consider(call: AnsweredCall): void {
    const { every, random = Math.random, check } = this.#options;
    if (every === 0 || this.#running !== undefined || random() * every >= 1) return;
    this.#running = check(call)
      .catch(() => undefined)
      .finally(() => {
        this.#running = undefined;
      });
  }

  /** Resolves when none runs. */
  async settled(): Promise<void> {
    await this.#running;
  }
}
