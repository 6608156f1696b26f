/**
 * Requests in progress: the memory that they hold (bodies, as they arrive and after decompression, and the tensors made of them), and
 * how many begin in one turn of the event loop.
 */
import { HostError } from '../errors.ts';

/** Requests of less are bounded by their number. */
const countedBytesMin = 64 * 1024;

export class InFlightBytes {
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** What one request holds. @param onOver is given what to call once its reply is sent or its connection closed */
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
  /** @throws HostError 'too-many-requests' where all requests together would hold too much */
  grow(bytes: number): void;
}

/** With all that follows on them before the event loop turns, some milliseconds of work. */
const requestsPerTurnMax = 32;

/**
 * Requests that come at once are begun a few in each turn of the event loop, so that the calls that are under way go on
 * between them: a thousand new connections would stop those for some tenths of a second. Where more wait, their paths
 * take turns, and so a thousand requests to one function are not ahead of one to another.
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
      // Behind all others, whom this loop comes to first.
      if (queue.length > 0) this.#waiting.set(path, queue);
      request?.();
    }
  };
}
