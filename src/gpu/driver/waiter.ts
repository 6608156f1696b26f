/**
 * Waits for events without blocking the event loop: one thread polls the driver for all of them.
 *
 * Why it polls: a blocking wait for one event would delay the others, Node's thread pool has no current context, and a
 * CUDA host function that calls JavaScript stalls its stream.
 */
import { Worker, type MessagePort, MessageChannel } from 'node:worker_threads';
import { compiledModule } from '../../process/index.ts';
import { waitThreadState, type WaitRequest, type WaitResult, type WaitThreadOptions } from './wait-protocol.ts';
import { CudaError } from './types.ts';

const module = compiledModule('./wait-thread.js', import.meta.url);

interface Waiting {
  readonly resolve: (status: number) => void;
  readonly reject: (error: Error) => void;
}

/** A query takes microseconds. If the thread does not stop within this time, the driver hangs. */
const endMsMax = 2000;

interface WaitThread {
  readonly worker: Worker;
  readonly port: MessagePort;
  /** See {@link WaitThreadOptions.signal}. */
  readonly signal: Int32Array;
}

export class Waiter {
  readonly #libraryFile: string;
  readonly #waiting = new Map<number, Waiting>();
  #thread: WaitThread | undefined;
  #next = 1;
  #closed = false;

  constructor(libraryFile: string) {
    this.#libraryFile = libraryFile;
  }

  /** Resolves with the driver's status once the event is no longer pending: 0 when it was reached. */
  wait(context: number, event: number): Promise<number> {
    if (this.#closed) return Promise.reject(closedError());
    const thread = this.#start();
    const id = this.#next++;
    if (this.#waiting.size === 0) thread.worker.ref();
    const request: WaitRequest = { id, context, event };
    const result = new Promise<number>((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a port of a thread, not a window
    thread.port.postMessage(request);
    Atomics.add(thread.signal, 0, 1);
    Atomics.notify(thread.signal, 0);
    return result;
  }

  /** Ends the thread and rejects the pending waits. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#rejectAll(closedError());
    const thread = this.#thread;
    if (thread === undefined) return;
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a port of a thread, not a window
    thread.port.postMessage('stop');
    Atomics.add(thread.signal, 0, 1);
    Atomics.notify(thread.signal, 0);
    // The caller destroys the events next, so the thread must have left the driver. While it is starting, it is not in
    // the driver yet and reads 'stop' first.
    Atomics.wait(thread.signal, 1, waitThreadState.running, endMsMax);
  }

  #start(): WaitThread {
    if (this.#thread !== undefined) return this.#thread;
    const { port1: port, port2: threadPort } = new MessageChannel();
    const signal = new Int32Array(new SharedArrayBuffer(8));
    const workerData: WaitThreadOptions = { libraryFile: this.#libraryFile, port: threadPort, signal };
    const worker = new Worker(module, { workerData, transferList: [threadPort] });
    worker.unref();
    port.on('message', (results: readonly WaitResult[]) => this.#settle(results));
    port.unref();
    worker.on('error', (error) => this.#fail(error));
    worker.on('exit', () => {
      port.close();
      this.#fail(new Error('the thread ended'));
    });
    this.#thread = { worker, port, signal };
    return this.#thread;
  }

  #settle(results: readonly WaitResult[]): void {
    for (const { id, status } of results) {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      waiting?.resolve(status);
    }
    if (this.#waiting.size === 0) this.#thread?.worker.unref();
  }

  #fail(cause: Error): void {
    this.#thread = undefined;
    const message = `the thread that waits for the GPU failed: ${cause.message}`;
    this.#rejectAll(new CudaError('unavailable', 'cuEventQuery', 0, 'WAIT_THREAD_FAILED', message));
  }

  #rejectAll(error: CudaError): void {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(error);
  }
}

function closedError(): CudaError {
  return new CudaError('misuse', 'cuEventQuery', 0, 'MISUSE', 'the driver was released while work was waited for');
}
