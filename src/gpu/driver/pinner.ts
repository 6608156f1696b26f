/**
 * Pins and frees host memory on a separate thread. The driver takes half a second for a GiB, which would block the
 * event loop.
 */
import { compiledModule, plainError, Server, startThread } from '../../process/index.ts';
import type { Pinned } from './host-pages.ts';
import type { PinRequest } from './pin-protocol.ts';

export class Pinner {
  readonly #libraryFile: string;
  #thread: Server<PinRequest> | undefined;

  constructor(libraryFile: string) {
    this.#libraryFile = libraryFile;
  }

  async ask(request: PinRequest): Promise<Pinned> {
    const { isAlive = false } = this.#thread ?? {};
    if (!isAlive) this.#thread = this.#start();
    return (await this.#thread!.ask<Pinned>(request)).answer;
  }

  close(): void {
    this.#thread?.end('the driver was released');
    this.#thread = undefined;
  }

  #start(): Server<PinRequest> {
    const thread = {
      module: compiledModule('./pin-thread.js', import.meta.url),
      name: 'pinner',
      ends: 'between-messages',
      data: { libraryFile: this.#libraryFile },
    } as const;
    return new Server<PinRequest>((events) => startThread(thread, events), {
      errorOf: plainError('the thread that pins memory'),
    });
  }
}
