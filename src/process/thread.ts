/** Worker threads, as peers. The thread's side is parent.ts. */
import { Worker } from 'node:worker_threads';
import { portChannel, type Channel } from './channel.ts';
import type { ThreadData } from './parent.ts';
import type { Peer, PeerEvents } from './peer.ts';

export interface ThreadOptions {
  /** See compiledModule. */
  readonly module: URL;
  /** What debuggers show. */
  readonly name: string;
  /**
   * `at-once`: ending cuts it off. `between-messages`: it leaves by itself after its current message; those behind it
   * are not answered. Cutting a thread off inside ONNX Runtime's binding would end the whole process with an uncaught
   * exception.
   */
  readonly ends: 'at-once' | 'between-messages';
  /** Added to the usual `workerData` of its module. */
  readonly data?: object;
}

export function startThread<Out extends object, In extends object>(
  options: ThreadOptions,
  events: PeerEvents<In>,
): Peer<Out> {
  return new Thread<Out, In>(options, events);
}

class Thread<Out extends object, In extends object> implements Peer<Out> {
  readonly pid = process.pid;
  readonly exited: Promise<void>;
  readonly send: Channel<Out>['send'];
  readonly #worker: Worker;
  readonly #stop = new Int32Array(new SharedArrayBuffer(4));
  readonly #ends: ThreadOptions['ends'];
  #reason: string | undefined;
  #isLate = false;

  constructor({ module, name, ends, data }: ThreadOptions, events: PeerEvents<In>) {
    this.#ends = ends;
    this.#worker = new Worker(module, { name, workerData: { ...data, stop: this.#stop } satisfies ThreadData });
    this.send = portChannel<Out, In>(this.#worker, (message) => {
      if (this.#reason === undefined || ends === 'between-messages') events.message(message);
    }).send;
    this.#worker.on('error', (error) => {
      this.#reason ??= error.message;
      events.closing?.(this.#reason);
    });
    // Only now does nothing use the objects of its messages any more.
    this.exited = new Promise((resolve) => {
      this.#worker.on('exit', (exitCode) => {
        const reason = this.#reason ?? 'it ended';
        events.ended({ reason, exitCode, signal: null, isLate: this.#isLate, words: '' });
        resolve();
      });
    });
  }

  end(reason: string, isLate = false): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#isLate = isLate;
    this.#worker.ref();
    switch (this.#ends) {
      case 'at-once':
        void this.#worker.terminate();
        return;
      case 'between-messages':
        // The flag overtakes queued messages; the message wakes a thread that has none.
        Atomics.store(this.#stop, 0, 1);
        // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
        this.#worker.postMessage({});
    }
  }

  unref(): void {
    this.#worker.unref();
  }
}
