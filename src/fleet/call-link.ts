/**
 * One end of a kept connection between two hosts, for passed calls: a sealed frame there and one back. It has one call
 * at a time, so that no call waits behind the bytes of another, and closing it gives up only its own call.
 */
import type { Socket } from 'node:net';
import { socketChannel, type Channel, type ChannelSeals } from '../process/index.ts';
import type { Message } from '../tensor/index.ts';

/** The target that a host asks another for by CONNECT. No proxies are involved: hosts reach each other directly. */
export const linkTarget = 'fleet-calls:1';
/** The reply's header with the nonce that the accepting host has drawn for its seals. */
export const linkNonceHeader = 'x-turntable-nonce';

export interface CallLinkEvents {
  readonly message: (message: Message<object>) => void;
  /** Called once, as the last event. */
  readonly ended: (error: Error) => void;
}

export class CallLink {
  readonly socket: Socket;
  readonly #channel: Channel<object>;
  #error: Error | undefined;
  isUp = true;

  /** @param head bytes received with the reply to CONNECT, or with the request */
  constructor(socket: Socket, head: Buffer, seals: ChannelSeals, { message, ended }: CallLinkEvents) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.setTimeout(0);
    socket.on('error', (error) => (this.#error ??= error));
    socket.once('end', () => socket.destroy());
    socket.once('close', () => {
      this.isUp = false;
      ended(this.#error ?? new Error('the connection was closed'));
    });
    if (head.byteLength > 0) socket.unshift(head);
    const unreadable = (reason: string): void => this.destroy(new Error(reason));
    this.#channel = socketChannel<object, object>(socket, { message, unreadable }, seals);
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

/** The end that sends calls. */
export class CallClient {
  readonly #link: CallLink;
  #waiting: Waiting | undefined;

  constructor(socket: Socket, head: Buffer, seals: ChannelSeals) {
    this.#link = new CallLink(socket, head, seals, {
      message: (answer) => this.#end()?.resolve(answer),
      ended: (error) => this.#end()?.reject(error),
    });
  }

  get isUp(): boolean {
    return this.#link.isUp;
  }

  /** One call at a time. Rejects if the connection ends before the answer, or the caller is gone. */
  async ask(call: Message<object>, signal: AbortSignal | undefined): Promise<Message<object>> {
    if (!this.isUp || signal?.aborted === true) throw new Error('the connection was closed');
    const stop = (): void => this.destroy(new Error('the client is gone'));
    signal?.addEventListener('abort', stop, { once: true });
    try {
      return await new Promise<Message<object>>((resolve, reject) => {
        this.#waiting = { resolve, reject };
        this.#link.send(call);
      });
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  destroy(error: Error): void {
    this.#link.destroy(error);
  }

  #end(): Waiting | undefined {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    return waiting;
  }
}
