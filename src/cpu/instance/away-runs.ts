/**
 * Runs that wait outside their process, which serves others meanwhile: their model runs elsewhere, or their handler
 * waits for other functions. The answer is sent to the process behind the messages that it has already.
 */
import { rowsOf, type Tensor } from '../../tensor/index.ts';
import { answersOf, modelAnswer } from './other-answers.ts';
import type { FromInstance, ToInstance } from './protocol.ts';
import type { RunTask } from './tasks.ts';

/** A run whose model its process is to run after all. */
interface ReturnedRun {
  readonly id: number;
  readonly task: RunTask;
  /** Rows of the model's inputs. */
  readonly rows: number;
}

export class AwayRuns {
  readonly #runs = new Map<number, RunTask>();
  /**
   * How many wait for a model that runs elsewhere. The others count for no limit of their process: the functions that
   * they call may need it. Those functions' queue limits bound how many of them wait.
   */
  models = 0;
  /** Until all that come back in this turn of the event loop are there: they may share a run of the model. */
  #returned: ReturnedRun[] = [];
  readonly #resume: (task: RunTask, header: ToInstance, tensors: readonly Tensor[]) => void;

  constructor(resume: (task: RunTask, header: ToInstance, tensors: readonly Tensor[]) => void) {
    this.#resume = resume;
  }

  /** Gets what a run asks for, and sends it to the process. */
  async ask({ id, asked }: FromInstance & { op: 'ask' }, task: RunTask, inputs: readonly Tensor[]): Promise<void> {
    const { modelRun, invokeOthers } = task.calls[0]!;
    this.#runs.set(id, task);
    if (asked === 'model') this.models++;
    const { answers, tensors } =
      asked === 'model' ? await modelAnswer(inputs, modelRun?.run) : await answersOf(asked, inputs, invokeOthers);
    // If the instance has died meanwhile, its call runs in another one.
    if (!this.#runs.has(id)) return;
    if (asked === 'model') {
      this.models--;
      task.phase = answers.length === 0 ? 'load' : 'postprocess';
      if (answers.length === 0) {
        this.#returns({ id, task, rows: rowsOf(inputs) ?? 1 });
        return;
      }
    }
    this.#runs.delete(id);
    task.session.moved(false);
    this.#resume(task, { op: 'answered', ids: [id], answers }, tensors);
  }

  #returns(run: ReturnedRun): void {
    this.#returned.push(run);
    if (this.#returned.length > 1) return;
    setImmediate(() => {
      let left = this.#returned.filter(({ id }) => this.#runs.delete(id));
      this.#returned = [];
      for (let [first] = left; first !== undefined; [first] = left) {
        const together = alongside(first, left);
        left = left.filter((each) => !together.includes(each));
        this.#runHere(together);
      }
    });
  }

  /** Lets the process run the model for these runs of one session together. */
  #runHere(runs: readonly ReturnedRun[]): void {
    const [{ task } = { task: undefined }] = runs;
    if (task === undefined) return;
    for (const { session } of runs.map((run) => run.task)) session.moved(false);
    task.session.divided(1 - runs.length);
    task.calls = runs.flatMap((run) => run.task.calls);
    // The instance counts from the latest start, too.
    task.startedMs = Math.max(...runs.map((run) => run.task.startedMs ?? 0));
    this.#resume(task, { op: 'answered', ids: runs.map(({ id }) => id), answers: [] }, []);
  }

  /** The process is gone. Returns the runs, the last first. */
  end(): RunTask[] {
    const runs = [...this.#runs.values()].reverse();
    this.#runs.clear();
    return runs;
  }
}

/** Those of the runs that may share a run of the model with the first, itself included. */
function alongside(first: ReturnedRun, runs: readonly ReturnedRun[]): readonly ReturnedRun[] {
  const { session, order } = first.task;
  if (order.join === 'no') return [first];
  let rows = 0;
  return runs.filter(({ task, rows: own }) => {
    const fits = task.session === session && task.order.join !== 'no' && rows + own <= order.limits.batchMax;
    if (fits) rows += own;
    return fits || task === first.task;
  });
}
