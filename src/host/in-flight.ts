/**
 * The memory that requests in progress hold, over HTTP and gRPC: bodies as they arrive and after decompression, their
 * tensors, and replies until they are sent.
 */
import { HostError } from './errors.ts';

/** Smaller requests over HTTP are only limited in number. */
const countedBytesMin = 64 * 1024;

export class InFlightBytes {
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Memory of one request.
   *
   * @param onOver gets a function to call once the reply is sent or the connection closed
   * @param bytesMin a request that holds less is not counted
   */
  held(onOver: (over: () => void) => void, bytesMin = countedBytesMin): HeldBytes {
    let bytes = 0;
    let counted = 0;
    let isOver = false;
    let isAsked = false;
    return {
      grow: (more) => {
        bytes += more;
        if (isOver || (bytes < bytesMin && counted === 0)) return;
        if (more > 0 && this.#bytes + bytes - counted > this.#bytesMax) {
          bytes -= more;
          throw new HostError(
            'too-many-requests',
            `the requests in progress hold ${this.#bytes} bytes; with this one they would be over the limit of ${this.#bytesMax}`,
          );
        }
        if (!isAsked) {
          isAsked = true;
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
  /**
   * @param bytes below 0: given back
   * @throws HostError 'too-many-requests' if all requests together would hold too much
   */
  grow(bytes: number): void;
}
