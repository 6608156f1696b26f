/**
 * Waiting for events without blocking the event loop. A thread of its own asks the driver about all of them in turn: a
 * wait in the driver would hold back the others, calls from the pool of Node's threads have no context, and a host
 * function that calls JavaScript stalls the stream that runs it.
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

/** One question to the driver takes microseconds, unless the driver itself hangs. */
const endMsMax = 2000;

interface WaitThread {
  readonly worker: Worker;
  readonly port: MessagePort;
  /** Changed and notified after each message, so that the thread may sleep without an event loop. */
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

  /** Resolves with the status of the event that is not "not ready": 0 when it was reached. */
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

  /** Ends the thread; what still waits is rejected. */
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
    // What it asks for is about to be destroyed, so it must have left the driver; one that is still starting never
    // enters it.
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
