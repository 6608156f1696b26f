/** Memory that requests in progress hold: bodies, as they arrive and after decompression, and the tensors made of them. */
import type { ServerResponse } from 'node:http';
import { HostError } from '../errors.ts';

/** Requests of less are bounded by their number. */
const countedBytesMin = 64 * 1024;

export class InFlightBytes {
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** What one request holds, until its reply is sent or its connection closed. */
  held(outgoing: ServerResponse): HeldBytes {
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
          outgoing.once('close', () => {
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
