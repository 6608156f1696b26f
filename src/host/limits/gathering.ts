/** Gathers a body or a message that comes in pieces. */
import { free, freedBytesMin } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { HeldBytes } from './in-flight.ts';

/** Buffers for bytes of unknown number: the first, the second, and how much larger each further one is. */
const firstBytes = 2 ** 20;
const secondBytes = 64 * 2 ** 20;
const growth = 4;

/**
 * The bytes so far, copied into place as they arrive: pieces that are joined at the end are in memory twice. Where their
 * number is not known, a full buffer is replaced by a larger one, of which only the part that is filled takes memory.
 */
export class Gathering {
  readonly #what: string;
  readonly #bytesMax: number;
  readonly #held: Pick<HeldBytes, 'grow'>;
  readonly #expected: number | undefined;
  #buffer: Buffer | undefined;
  /** Whether the buffer was made here; one that arrived may share its memory with others. */
  #isOwn = false;
  bytes = 0;

  /** @param expected bytes to come, which are counted as held elsewhere */
  constructor(what: string, bytesMax: number, expected: number | undefined, held: Pick<HeldBytes, 'grow'>) {
    this.#what = what;
    this.#bytesMax = bytesMax;
    this.#held = held;
    this.#expected = expected;
  }

  /**
   * @param isSpent nobody else has a part of the chunk's memory: it is freed once it is copied
   * @throws HostError
   */
  add(chunk: Buffer, isSpent = false): void {
    const bytes = this.bytes + chunk.byteLength;
    if (bytes > this.#bytesMax) throw tooLarge(this.#what, this.#bytesMax);
    if (this.#expected === undefined) this.#held.grow(chunk.byteLength);
    // Small ones arrive in one piece.
    if (this.bytes === 0 && (this.#expected ?? chunk.byteLength) === chunk.byteLength) this.#buffer = chunk;
    else {
      if (this.#buffer === undefined || bytes > this.#buffer.byteLength) this.#enlarge(bytes);
      chunk.copy(this.#buffer!, this.bytes);
      if (isSpent && chunk.buffer.byteLength >= freedBytesMin) free(chunk.buffer);
    }
    this.bytes = bytes;
  }

  #enlarge(bytes: number): void {
    const before = this.#buffer;
    const next = bytes <= firstBytes ? firstBytes : Math.max(secondBytes, growth * (before?.byteLength ?? 0));
    this.#buffer = Buffer.allocUnsafeSlow(this.#expected ?? Math.min(next, this.#bytesMax));
    before?.copy(this.#buffer, 0, 0, this.bytes);
    if (this.#isOwn) free(before!.buffer);
    this.#isOwn = true;
  }

  /**
   * Frees what is there, of which nobody else has a part: a flood of refused bodies makes garbage faster than it can be
   * collected.
   */
  drop(): void {
    if (this.#isOwn && this.#buffer !== undefined) free(this.#buffer.buffer);
    if (this.#expected === undefined) this.#held.grow(-this.bytes);
    this.#buffer = undefined;
    this.bytes = 0;
  }

  whole(): Buffer {
    const whole = this.#buffer?.subarray(0, this.bytes) ?? Buffer.alloc(0);
    // The request's listeners keep this object as long as the request lasts.
    this.#buffer = undefined;
    this.bytes = 0;
    return whole;
  }
}

export function tooLarge(what: string, bytesMax: number, bytes?: number): HostError {
  const size = bytes === undefined ? '' : ` (${bytes} bytes)`;
  return new HostError('body-too-large', `${what}${size} is over the limit of ${bytesMax} bytes`);
}
