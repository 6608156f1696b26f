type Interrupting = 'SIGINT' | 'SIGTERM';

/** Aborted by Ctrl-C or SIGTERM, with the signal's name as the reason, until it is disposed of. */
export class Interruption extends AbortController implements Disposable {
  readonly #signals: readonly Interrupting[];
  readonly #listener = (signal: Interrupting): void => this.abort(signal);

  constructor(signals: readonly Interrupting[] = ['SIGINT', 'SIGTERM']) {
    super();
    this.#signals = signals;
    for (const signal of signals) process.on(signal, this.#listener);
  }

  [Symbol.dispose](): void {
    for (const signal of this.#signals) process.off(signal, this.#listener);
  }
}
