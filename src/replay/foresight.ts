import type { Foresight, Given, FunctionId } from '../schedule/index.ts';
import type { Trace } from './types.ts';

/** Stands for no invocation. */
const none = -1;

/** All arrivals of a trace, read before it is replayed: twelve bytes for each. */
export class TraceForesight implements Foresight {
  readonly #arrivalMs: Float64Array;
  /** The next invocation of the same function, if any. */
  readonly #following: Int32Array;
  /** By function: its next invocation that has not arrived, if any. */
  readonly #next: number[];

  constructor(trace: Trace) {
    const arrivalMs: number[] = [];
    const functions: number[] = [];
    for (const invocation of trace.invocations()) {
      arrivalMs.push(invocation.arrivalMs);
      functions.push(invocation.functionIndex);
    }
    this.#arrivalMs = Float64Array.from(arrivalMs);
    this.#following = new Int32Array(arrivalMs.length).fill(none);
    this.#next = [];
    for (let at = arrivalMs.length - 1; at >= 0; at--) {
      const functionIndex = functions[at]!;
      this.#following[at] = this.#next[functionIndex] ?? none;
      this.#next[functionIndex] = at;
    }
  }

  nextUseMs = (functionIndex: Given<FunctionId>): number => {
    const at = this.#next[functionIndex] ?? none;
    return at === none ? Infinity : this.#arrivalMs[at]!;
  };

  /** The function's next invocation has arrived. */
  arrived(functionIndex: Given<FunctionId>): void {
    const at = this.#next[functionIndex] ?? none;
    if (at !== none) this.#next[functionIndex] = this.#following[at]!;
  }
}
