/**
 * Runs that wait outside their process, which serves others meanwhile: their model runs elsewhere, or their handler
 * waits for other functions. The result is sent to the process behind the messages that it has already.
 */
import type { Tensor } from '../../tensor/index.ts';
import { answersOf } from './other-answers.ts';
import type { FromInstance, ToInstance } from './protocol.ts';
import type { RunTask } from './tasks.ts';

export class AwayRuns {
  /** By the id under which the instance asked for the model's run. */
  readonly #modelRuns = new Map<number, RunTask>();
  /**
   * Runs that wait for other functions. They count for no limit of their process: the functions that they call may need
   * it. Those functions' queue limits bound how many runs wait here.
   */
  readonly #asking = new Map<number, RunTask>();
  readonly #resume: (task: RunTask, header: ToInstance, tensors: readonly Tensor[]) => void;

  constructor(resume: (task: RunTask, header: ToInstance, tensors: readonly Tensor[]) => void) {
    this.#resume = resume;
  }

  /** How many wait for a model that runs elsewhere. */
  get models(): number {
    return this.#modelRuns.size;
  }

  /** Runs the model elsewhere, and sends the process the result. */
  async runModel(id: number, task: RunTask, inputs: readonly Tensor[]): Promise<void> {
    this.#modelRuns.set(id, task);
    let outputs: readonly Tensor[] | undefined;
    let outcome: (ToInstance & { op: 'model-ran' })['outcome'] = 'failed';
    try {
      outputs = await task.order.runModel?.(inputs);
      outcome = outputs === undefined ? 'here' : 'outputs';
    } catch {
      // The ticket keeps the error; the instance only needs to know that there are no outputs.
    }
    // If the instance has died meanwhile, its call runs in another one.
    if (!this.#modelRuns.delete(id)) return;
    task.phase = outcome === 'here' ? 'load' : 'postprocess';
    this.#back(task, { op: 'model-ran', id, outcome }, outputs ?? []);
  }

  /** Calls other functions for a run's handler, and sends the process their answers. */
  async invokeOthers(
    { id, call, asked }: FromInstance & { op: 'invoke' },
    task: RunTask,
    inputs: readonly Tensor[],
  ): Promise<void> {
    this.#asking.set(id, task);
    const { answers, tensors } = await answersOf(asked, inputs, task.order.invokeOthers?.(call));
    if (this.#asking.delete(id)) this.#back(task, { op: 'invoked', id, answers }, tensors);
  }

  /** The process is gone. Returns the runs, the last first. */
  end(): RunTask[] {
    const runs = [...this.#modelRuns.values(), ...this.#asking.values()].reverse();
    this.#modelRuns.clear();
    this.#asking.clear();
    return runs;
  }

  #back(task: RunTask, header: ToInstance, tensors: readonly Tensor[]): void {
    task.session.moved(false);
    this.#resume(task, header, tensors);
  }
}
