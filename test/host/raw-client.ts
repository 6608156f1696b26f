/** A client that sends exactly the bytes that a test gives it. */
import { connect, type Socket } from 'node:net';

/** A TCP connection that keeps everything it receives. */
export class RawClient {
  readonly socket: Socket;
  received = '';
  readonly closed: Promise<void>;
  #waiting: (() => void)[] = [];

  constructor(port: number) {
    this.socket = connect(port, '127.0.0.1');
    this.socket.on('data', (chunk) => {
      this.received += chunk.toString('latin1');
      for (const wake of this.#waiting.splice(0)) wake();
    });
    this.socket.on('error', () => undefined);
    this.closed = new Promise((resolve) => {
      this.socket.on('close', () => {
        for (const wake of this.#waiting.splice(0)) wake();
        resolve();
      });
    });
  }

  write(text: string | Uint8Array): this {
    this.socket.write(text);
    return this;
  }

  /** Resolves once `pattern` was received; throws if the connection closes before. */
  async until(pattern: RegExp): Promise<string> {
    while (!pattern.test(this.received)) {
      if (this.socket.destroyed) throw new Error(`closed before ${String(pattern)}; received ${this.received}`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    return this.received;
  }

  /** Everything received when the host closed the connection. */
  async toEnd(): Promise<string> {
    await this.closed;
    return this.received;
  }
}
