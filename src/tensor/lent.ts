/**
 * Bytes of a tensor in memory that another process writes to again once they are given back. Most answers of a child are
 * sent in the same turn of the event loop, to a socket that takes all of them at once. Copying an answer before that took
 * some 4% of the host's time for a call of 602 KB, and 5 to 8% for one of 1.2 MB (means of four or five starts, which
 * differ by 10%). All other readers get a copy, which is made when `data` is first read, or at the end of the turn.
 */
export class Lent {
  readonly byteLength: number;
  readonly #giveBack: () => void;
  /** Where the bytes are until they are given back. */
  #place: Uint8Array | undefined;
  #copy: Uint8Array | undefined;
  #isInUse = false;

  constructor(place: Uint8Array, giveBack: () => void) {
    this.byteLength = place.byteLength;
    this.#place = place;
    this.#giveBack = giveBack;
  }

  /** The copy, which is made if there is none. */
  get data(): Uint8Array {
    if (this.#copy !== undefined) return this.#copy;
    if (this.#place === undefined) throw new Error('a tensor was read after its memory was given back');
    this.#copy = Buffer.from(this.#place);
    if (!this.#isInUse) this.end();
    return this.#copy;
  }

  get copy(): Uint8Array | undefined {
    return this.#copy;
  }

  /** Bytes that stay as they are until {@link end}: in place, unless there is a copy. */
  use(): Uint8Array {
    this.#isInUse = true;
    return this.#copy ?? this.#place ?? this.data;
  }

  /** Nothing reads the bytes in place any more. */
  end(): void {
    if (this.#place === undefined) return;
    this.#place = undefined;
    this.#giveBack();
  }

  /** At the end of the turn: what may be read later is copied. */
  settle(): void {
    if (!this.#isInUse && this.#place !== undefined) void this.data;
  }
}

/** The bytes as they stay. */
export const bytesToKeep = (bytes: Uint8Array | Lent): Uint8Array => (bytes instanceof Lent ? bytes.data : bytes);
