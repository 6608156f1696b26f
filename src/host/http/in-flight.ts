/** The memory that requests in progress hold: bodies, as they arrive and after decompression, and their tensors. */
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
