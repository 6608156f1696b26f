/** Answers that grow with the number of functions. */
import { jsonInSlices } from '../limits/slices.ts';
import type { InFlightBytes } from '../limits/in-flight.ts';
import { Semaphore } from '../../tools/index.ts';

export interface List {
  readonly json: Buffer;
  /** Counts a reader of it, until `over` is called. @throws HostError 'too-many-requests' */
  read(onOver: (over: () => void) => void): void;
}

/**
 * Makes lists one after the other: the objects of hundreds of readers at once would be in memory together. All that ask
 * for the same list before it is begun get the same bytes, which count once.
 */
export class Lists {
  readonly #inFlight: InFlightBytes;
  readonly #turns = new Semaphore();
  /** By path and query. */
  readonly #waiting = new Map<string, Promise<List>>();

  constructor(inFlight: InFlightBytes) {
    this.#inFlight = inFlight;
  }

  of(url: string, make: () => Promise<object>): Promise<List> {
    const waiting = this.#waiting.get(url);
    if (waiting !== undefined) return waiting;
    const made = this.#turns.use(async () => {
      this.#waiting.delete(url);
      this.#inFlight.tidy();
      return this.#list(Buffer.from(`${await jsonInSlices(await make())}\n`));
    });
    this.#waiting.set(url, made);
    return made;
  }

  #list(json: Buffer): List {
    let readers = 0;
    let letGo: (() => void) | undefined;
    return {
      json,
      read: (onOver) => {
        if (readers === 0) this.#inFlight.held((over) => (letGo = over)).grow(json.byteLength, true, true);
        readers++;
        onOver(() => {
          if (--readers === 0) letGo?.();
        });
      },
    };
  }
}
