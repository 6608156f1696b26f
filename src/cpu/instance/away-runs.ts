/**
 * Runs that wait outside their process, which serves others meanwhile: their model runs elsewhere, or their handler
 * waits for other functions. The answer is sent to the process behind the messages that it has already.
 */
import type { Tensor } from '../../tensor/index.ts';
import { answersOf, modelAnswer } from './other-answers.ts';
import type { FromInstance, ToInstance } from './protocol.ts';
import type { RunTask } from './tasks.ts';

export class AwayRuns {
  readonly #runs = new Map<number, RunTask>();
  /**
   * How many wait for a model that runs elsewhere. The others count for no limit of their process: the functions that
   * they call may need it. Those functions' queue limits bound how many of them wait.
   */
  models = 0;
  readonly #resume: (task: RunTask, header: ToInstance, tensors: readonly Tensor[]) => void;

  constructor(resume: (task: RunTask, header: ToInstance, tensors: readonly Tensor[]) => void) {
    this.#resume = resume;
  }

  /** Gets what a run asks for, and sends it to the process. */
  async ask({ id, asked }: FromInstance & { op: 'ask' }, task: RunTask, inputs: readonly Tensor[]): Promise<void> {
    const { order, session } = task;
    const call = task.calls[0]!;
    this.#runs.set(id, task);
    if (asked === 'model') this.models++;
    const { answers, tensors } =
      asked === 'model'
        ? await modelAnswer(inputs, order.runModel?.(call))
        : await answersOf(asked, inputs, order.invokeOthers?.(call));
    // If the instance has died meanwhile, its call runs in another one.
    if (!this.#runs.delete(id)) return;
    if (asked === 'model') {
      this.models--;
      task.phase = answers.length === 0 ? 'load' : 'postprocess';
    }
    session.moved(false);
    this.#resume(task, { op: 'answered', id, answers }, tensors);
  }

  /** The process is gone. Returns the runs, the last first. */
  end(): RunTask[] {
    const runs = [...this.#runs.values()].reverse();
    this.#runs.clear();
    return runs;
  }
}
