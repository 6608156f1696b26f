/**
 * A proxy to a server's socket whose connections a test can break, like a network failure, while the server lives on.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

export class BreakableWay implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(target: string) {
    this.#server = createServer((near) => {
      const far = connect(target);
      this.#join(near, far);
      this.#join(far, near);
    });
  }

  /** Listens on the socket `at` and forwards to the socket `target`. */
  static async open(at: string, target: string): Promise<BreakableWay> {
    const way = new BreakableWay(target);
    way.#server.listen(at);
    await once(way.#server, 'listening');
    return way;
  }

  /** Breaks all connections; new ones can be made at once. */
  break(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.break();
    await closed;
  }

  #join(from: Socket, to: Socket): void {
    this.#sockets.add(from);
    from.on('error', () => undefined); // Its 'close' follows.
    from.on('close', () => {
      this.#sockets.delete(from);
      to.destroy();
    });
    from.pipe(to);
  }
}
