/**
 * One end of a kept connection between two members: a frame there and one back. It has one request at a time, so that
 * no call waits behind the bytes of another, and closing it gives up only its own request.
 */
import type { Socket } from 'node:net';
import { socketChannel, type Channel } from '../process/index.ts';
import type { Message } from '../tensor/index.ts';

export interface ConnectionEvents {
  readonly message: (message: Message<object>) => void;
  /** Called once, as the last event. */
  readonly ended: (error: Error) => void;
}

export class Connection {
  readonly socket: Socket;
  readonly #channel: Channel<object>;
  #error: Error | undefined;
  isUp = true;

  constructor(socket: Socket, { message, ended }: ConnectionEvents) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on('error', (error) => (this.#error ??= error));
    socket.once('end', () => socket.destroy());
    socket.once('close', () => {
      this.isUp = false;
      ended(this.#error ?? new Error('the connection was closed'));
    });
    const unreadable = (reason: string): void => this.destroy(new Error(reason));
    this.#channel = socketChannel<object, object>(socket, { message, unreadable });
    if (socket.destroyed) this.isUp = false;
  }

  send({ header, tensors }: Message<object>): void {
    this.#channel.send(header, tensors);
  }

  destroy(error: Error): void {
    this.#error ??= error;
    this.isUp = false;
    this.socket.destroy();
  }
}

interface Waiting {
  readonly resolve: (answer: Message<object>) => void;
  readonly reject: (error: Error) => void;
}

/** The end that asks. */
export class ConnectionClient {
  readonly #connection: Connection;
  #waiting: Waiting | undefined;

  constructor(socket: Socket) {
    this.#connection = new Connection(socket, {
      message: (answer) => this.#end()?.resolve(answer),
      ended: (error) => this.#end()?.reject(error),
    });
  }

  get isUp(): boolean {
    return this.#connection.isUp;
  }

  /**
   * One request at a time. Rejects if the connection ends before the answer, or the caller is gone.
   *
   * @param timeoutMs default: the answer may take any time
   */
  async ask(request: Message<object>, signal?: AbortSignal, timeoutMs?: number): Promise<Message<object>> {
    if (!this.isUp || signal?.aborted === true) throw new Error('the connection was closed');
    const stop = (): void => this.destroy(new Error('the client is gone'));
    const late = (): void => this.destroy(new Error(`no answer within ${timeoutMs} ms`));
    const timer = timeoutMs === undefined ? undefined : setTimeout(late, timeoutMs);
    signal?.addEventListener('abort', stop, { once: true });
    try {
      return await new Promise<Message<object>>((resolve, reject) => {
        this.#waiting = { resolve, reject };
        this.#connection.send(request);
      });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', stop);
    }
  }

  destroy(error: Error): void {
    this.#connection.destroy(error);
  }

  #end(): Waiting | undefined {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    return waiting;
  }
}
