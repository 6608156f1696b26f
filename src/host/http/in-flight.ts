/**
 * Requests in progress: the memory that they hold (bodies, as they arrive and after decompression, and their tensors),
 * and how many begin in one turn of the event loop.
 */
import { HostError } from '../errors.ts';

/** Smaller requests are only limited in number. */
const countedBytesMin = 64 * 1024;

export class InFlightBytes {
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Memory of one request. @param onOver gets a function to call once the reply is sent or the connection closed */
  held(onOver: (over: () => void) => void): HeldBytes {
    let bytes = 0;
    let counted = 0;
    let isOver = false;
    return {
      grow: (more) => {
        bytes += more;
        if (isOver || bytes < countedBytesMin) return;
        if (this.#bytes + bytes - counted > this.#bytesMax) {
          bytes -= more;
          throw new HostError(
            'too-many-requests',
            `the requests in progress hold ${this.#bytes} bytes; with this one they would be over the limit of ${this.#bytesMax}`,
          );
        }
        if (counted === 0) {
          onOver(() => {
            isOver = true;
            this.#bytes -= counted;
          });
        }
        this.#bytes += bytes - counted;
        counted = bytes;
      },
    };
  }
}

export interface HeldBytes {
  /** @throws HostError 'too-many-requests' if all requests together would hold too much */
  grow(bytes: number): void;
}

/** With all that follows before the event loop turns, some milliseconds of work. */
const requestsPerTurnMax = 32;

/**
 * Requests that arrive at once are begun a few per turn of the event loop, so that calls under way continue between
 * them: a thousand new connections would otherwise stop those for some tenths of a second. If more wait, their paths
 * take turns, so that a thousand requests to one function do not precede one to another.
 */
export class RequestTurns {
  /** By path. The first is next. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #hasBegun = false;
  #left = requestsPerTurnMax;

  begin(url: string, request: () => void): void {
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      setImmediate(this.#turn);
    }
    if (this.#left > 0) {
      this.#left--;
      request();
      return;
    }
    const path = url.split('?', 1)[0]!;
    const queue = this.#waiting.get(path);
    if (queue === undefined) this.#waiting.set(path, [request]);
    else queue.push(request);
  }

  readonly #turn = (): void => {
    this.#left = requestsPerTurnMax;
    this.#hasBegun = this.#waiting.size > 0;
    if (!this.#hasBegun) return;
    setImmediate(this.#turn);
    for (const [path, queue] of this.#waiting) {
      if (this.#left === 0) return;
      this.#left--;
      this.#waiting.delete(path);
      const request = queue.shift();
      // Behind all others: the loop comes to those first.
      if (queue.length > 0) this.#waiting.set(path, queue);
      request?.();
    }
  };
}
