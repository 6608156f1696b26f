/**
 * Runs that have left their process, which goes on with others meanwhile: their model runs elsewhere, or their handler
 * waits for other functions. What comes of them goes to the process behind what it has already.
 */
import type { Tensor } from '../../tensor/index.ts';
import { answersOf } from './other-answers.ts';
import type { FromInstance, ToInstance } from './protocol.ts';
import type { RunTask } from './tasks.ts';

/** Calls whose model runs elsewhere that an instance keeps at a time, each with its request and handler's state. */
const awayMax = 16;

export class AwayRuns {
  /** By the number under which the model's run was asked for. */
  readonly #modelRuns = new Map<number, RunTask>();
  /**
   * Runs that wait for other functions. They count for no limit: those may need this very process, and what they refuse
   * because too many wait bounds how many come here.
   */
  readonly #asking = new Map<number, RunTask>();
  readonly #resume: (task: RunTask, header: ToInstance, tensors: readonly Tensor[]) => void;

  constructor(resume: (task: RunTask, header: ToInstance, tensors: readonly Tensor[]) => void) {
    this.#resume = resume;
  }

  get isFull(): boolean {
    return this.#modelRuns.size >= awayMax;
  }

  /** Has the run's model run, and tells the process what came of it. */
  async runModel(id: number, task: RunTask, inputs: readonly Tensor[]): Promise<void> {
    this.#modelRuns.set(id, task);
    let outputs: readonly Tensor[] | undefined;
    let outcome: (ToInstance & { op: 'model-ran' })['outcome'] = 'failed';
    try {
      outputs = await task.order.runModel?.(inputs);
      outcome = outputs === undefined ? 'here' : 'outputs';
    } catch {
      // The ticket keeps the error; the instance need only know that there is nothing to go on with.
    }
    // The call of an instance that has died meanwhile runs in another one.
    if (!this.#modelRuns.delete(id)) return;
    task.phase = outcome === 'here' ? 'load' : 'postprocess';
    this.#back(task, { op: 'model-ran', id, outcome }, outputs ?? []);
  }

  /** Asks other functions for a run's handler, and tells the process what they answered. */
  async invokeOthers(
    { id, call, asked }: FromInstance & { op: 'invoke' },
    task: RunTask,
    inputs: readonly Tensor[],
  ): Promise<void> {
    this.#asking.set(id, task);
    const { answers, tensors } = await answersOf(asked, inputs, task.order.invokeOthers?.(call));
    if (this.#asking.delete(id)) this.#back(task, { op: 'invoked', id, answers }, tensors);
  }

  /** The process is gone. Gives the runs, the last first. */
  end(): RunTask[] {
    const runs = [...this.#modelRuns.values(), ...this.#asking.values()].reverse();
    this.#modelRuns.clear();
    this.#asking.clear();
    return runs;
  }

  #back(task: RunTask, header: ToInstance, tensors: readonly Tensor[]): void {
    task.order.onBack?.();
    this.#resume(task, header, tensors);
  }
}
