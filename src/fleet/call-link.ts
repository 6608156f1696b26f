/**
 * One end of a kept connection between two hosts, for calls that are passed on: a sealed frame there and one back. It
 * has one call at a time, so that no call waits behind the bytes of another, and closing it gives up its call alone.
 */
import type { Socket } from 'node:net';
import { socketChannel, type Channel, type ChannelSeals } from '../process/index.ts';
import type { Message } from '../tensor/index.ts';

/** What a host asks of another one by CONNECT. Proxies have no part in it: hosts reach each other directly. */
export const linkTarget = 'fleet-calls:1';
/** The header of the reply with what the host that took the connection has drawn for its seals. */
export const linkNonceHeader = 'x-turntable-nonce';

export interface CallLinkEvents {
  readonly message: (message: Message<object>) => void;
  /** Called once; nothing is called after it. */
  readonly ended: (error: Error) => void;
}

export class CallLink {
  readonly socket: Socket;
  readonly #channel: Channel<object>;
  #error: Error | undefined;
  isUp = true;

  /** @param head what had come behind the reply to CONNECT, or behind the request */
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

/** The end that has calls. */
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

  /** One at a time. Rejects where the connection ends before the answer, and where the caller is gone. */
  ask(call: Message<object>, signal: AbortSignal | undefined): Promise<Message<object>> {
    return new Promise((resolve, reject) => {
      if (!this.isUp || signal?.aborted === true) {
        reject(new Error('the connection was closed'));
        return;
      }
      const stop = (): void => this.destroy(new Error('the client is gone'));
      signal?.addEventListener('abort', stop, { once: true });
      const over = (): void => signal?.removeEventListener('abort', stop);
      this.#waiting = {
        resolve: (answer) => {
          over();
          resolve(answer);
        },
        reject: (error) => {
          over();
          reject(error);
        },
      };
      this.#link.send(call);
    });
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
