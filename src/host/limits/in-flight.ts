/**
 * The memory that requests in progress hold, over HTTP and gRPC: bodies as they arrive and after decompression, their
 * tensors, and replies until they are sent.
 */
import { heap, type OwnMemory } from '../../process/index.ts';
import { HostError } from '../errors.ts';

/** Smaller requests over HTTP are only limited in number. */
const countedBytesMin = 64 * 1024;
/** The part of the limit that may be garbage: buffers of requests that are over, until they are collected. */
const garbageShare = 1 / 8;
/** What an operator asks for may be so much over the limit, all together. */
const reserveShare = 1 / 8;
/** Collecting takes at most this share of the time. */
const collectingShare = 1 / 10;
/** While the process has more than it may. */
const collectingShareFull = 1 / 3;
/**
 * Beside what is counted, the process may grow by so much of the limit over what it had when next to nothing was in
 * flight: what libraries keep of connections and streams, garbage, pages that are free but not given back. Beyond that
 * it is collected.
 */
const beyondShare = 1 / 4;
/** Of a small limit by this: Node's own heap grows and shrinks by as much. */
const beyondBytesMin = 32 * 2 ** 20;
/** What is collected leaves half of it: with that much beyond the whole limit, calls are refused. */
const fullShare = 1 / 2;
/** Less in flight is next to nothing. */
const quietShare = 1 / 16;
/** While much is in flight all the time, what the host needs itself may grow by so much beyond what is counted of it. */
const ownBytesPerMs = (8 * 2 ** 20) / 60_000;
/** How often it is looked up what the process has: it takes some 20 us. */
const lookEveryMs = 20;

export interface InFlightOptions {
  /** What the host keeps for its functions, as far as it is counted: not for requests, though it grows with them. */
  readonly keptBytes?: () => number;
  readonly memory?: OwnMemory;
  readonly isAlone?: boolean;
}

export class InFlightBytes {
  readonly #bytesMax: number;
  readonly #memory: OwnMemory;
  #bytes = 0;
  #garbageBytes = 0;
  /** Instant (performance.now()) from which it may be collected again. */
  #collectFromMs = 0;
  #collectFullFromMs = 0;
  #isToBeCollected = false;
  /** What the process had beside what was held, when it had last returned what was free. */
  #restBytes: number;
  readonly #isAlone: boolean;
  /** What the process had when it was last collected with next to nothing in flight. */
  #quietBytes: number;
  #quietAtMs = performance.now();
  readonly #keptBytes: () => number;
  /** At that instant, and the most since. */
  #quietKeptBytes: number;
  #mostKeptBytes: number;
  #lookedMs = -Infinity;
  #isBeyond = false;

  /** @param isAlone the process does nothing else: what it takes is taken by requests */
  constructor(bytesMax: number, { memory = heap, isAlone = false, keptBytes = () => 0 }: InFlightOptions = {}) {
    this.#bytesMax = bytesMax;
    this.#memory = memory;
    this.#isAlone = isAlone;
    this.#restBytes = memory.ownBytes();
    this.#quietBytes = this.#restBytes;
    this.#keptBytes = keptBytes;
    this.#quietKeptBytes = this.#mostKeptBytes = keptBytes();
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
    let freedBytes = 0;
    return {
      freed: (more) => {
        freedBytes += more;
      },
      grow: (more, isThere = false, isForOperator = false) => {
        bytes += more;
        if (more < 0 && isThere) this.#dropped(-more);
        if (isOver) {
          // Else the work for a client that has gone would be counted nowhere.
          if (more > 0) throw new HostError('client-gone', 'the client closed the connection before its call was over');
          return;
        }
        if (bytes < bytesMin && counted === 0) return;
        const why = more <= 0 ? undefined : this.#whyNot(bytes - counted, isForOperator);
        if (why !== undefined) {
          bytes -= more;
          if (isThere) this.#dropped(more);
          throw new HostError('too-many-requests', why);
        }
        if (!isAsked) {
          isAsked = true;
          onOver(() => {
            isOver = true;
            this.#bytes -= counted;
            this.#dropped(Math.max(0, counted - freedBytes));
          });
        }
        this.#bytes += bytes - counted;
        counted = bytes;
      },
    };
  }

  /** Collects garbage if there is much: for work that leaves more of it than it counts. */
  tidy(): void {
    this.#grewBeyond();
  }

  #whyNot(more: number, isForOperator: boolean): string | undefined {
    const bytesMax = this.#bytesMax * (isForOperator ? 1 + reserveShare : 1);
    const limit = `over the limit of ${this.#bytesMax}`;
    const isBeyond = this.#grewBeyond();
    if (this.#bytes + more > bytesMax)
      return `the requests in progress hold ${this.#bytes} bytes; with this one they would be ${limit}`;
    return isBeyond && !isForOperator
      ? `the requests in progress and what comes with them take memory ${limit} bytes`
      : undefined;
  }

  /**
   * Collects what makes the process larger than what is counted explains. Returns whether it stays larger than all that
   * may be in flight: before the next collection is due, as the last one left it, since the rest may be garbage.
   */
  #grewBeyond(): boolean {
    const nowMs = performance.now();
    if (!this.#isAlone || nowMs - this.#lookedMs < lookEveryMs) return this.#isBeyond;
    this.#lookedMs = nowMs;
    const beyondBytes = Math.max(beyondBytesMin, this.#bytesMax * beyondShare);
    const fullBytes = this.#bytesMax + beyondBytes * fullShare;
    const unexplained = (): number => this.#memory.ownBytes() - this.#quietBytes - this.#keptSinceQuiet();
    const bytes = unexplained();
    const isFull = bytes > fullBytes;
    const isDue = isFull ? nowMs >= this.#collectFullFromMs : nowMs >= this.#collectFromMs;
    const isCleared = isDue && (isFull || bytes > this.#bytes + beyondBytes);
    if (isCleared) this.#clear();
    return (this.#isBeyond = isFull && (isCleared ? unexplained() > fullBytes : this.#isBeyond));
  }

  /** V8 collects large buffers late, and those of an attack all together would be over the limit. */
  #dropped(bytes: number): void {
    this.#garbageBytes += bytes;
    if (this.#isToBeCollected || this.#garbageBytes < this.#bytesMax * garbageShare) return;
    this.#isToBeCollected = true;
    // Not now: the caller still refers to what it drops.
    setTimeout(() => this.#clear(), Math.max(0, this.#collectFromMs - performance.now())).unref();
  }

  #clear(): void {
    this.#isToBeCollected = false;
    this.#garbageBytes = 0;
    const beginMs = performance.now();
    this.#memory.collect();
    this.#returnFree();
    const endMs = performance.now();
    this.#learnQuiet(endMs);
    this.#collectFromMs = endMs + (endMs - beginMs) * (1 / collectingShare - 1);
    this.#collectFullFromMs = endMs + (endMs - beginMs) * (1 / collectingShareFull - 1);
  }

  #learnQuiet(nowMs: number): void {
    const restBytes = this.#memory.ownBytes() - this.#bytes;
    const isQuiet = this.#bytes <= this.#bytesMax * quietShare;
    const mayGrowBytes = this.#keptSinceQuiet() + (nowMs - this.#quietAtMs) * ownBytesPerMs;
    const grownBytes = Math.min(restBytes, this.#quietBytes + mayGrowBytes);
    this.#quietBytes = isQuiet ? restBytes : Math.max(this.#quietBytes, grownBytes);
    this.#quietAtMs = nowMs;
    this.#quietKeptBytes = this.#mostKeptBytes = this.#keptBytes();
  }

  /** The most: functions that were removed have left free pages. */
  #keptSinceQuiet(): number {
    this.#mostKeptBytes = Math.max(this.#mostKeptBytes, this.#keptBytes());
    return this.#mostKeptBytes - this.#quietKeptBytes;
  }

  /** The C library keeps up to 64 MB for each of its threads, of which decompressors and tensors come. */
  #returnFree(): void {
    const restBytes = (): number => this.#memory.ownBytes() - this.#bytes;
    if (restBytes() - this.#restBytes < this.#bytesMax * garbageShare) return;
    this.#memory.trim();
    this.#restBytes = restBytes();
  }
}

export interface HeldBytes {
  /**
   * @param bytes below 0: given back
   * @param isThere whether they are in memory already, or now garbage
   * @param isForOperator they may be of the reserve
   * @throws HostError 'too-many-requests' if all requests together would hold too much
   */
  grow(bytes: number, isThere?: boolean, isForOperator?: boolean): void;
  /** So many of its bytes were freed by themselves: they are no garbage once it is over. */
  freed(bytes: number): void;
}
