/**
 * The memory that requests in progress hold, over HTTP and gRPC: bodies as they arrive and after decompression, their
 * tensors, and replies until they are sent.
 */
import { heap, type ProcessMemory } from '../../process/index.ts';
import { HostError } from '../errors.ts';

/** Smaller requests over HTTP are only limited in number. */
const countedBytesMin = 64 * 1024;
/** The part of the limit that may be garbage: buffers of requests that are over, until they are collected. */
const garbageShare = 1 / 8;
/** What an operator asks for may be so much over the limit, all together. */
const reserveShare = 1 / 8;
/** Collecting takes at most this share of the time. */
const collectingShare = 1 / 10;

export class InFlightBytes {
  readonly #bytesMax: number;
  readonly #memory: ProcessMemory;
  #bytes = 0;
  #garbageBytes = 0;
  /** Instant (performance.now()) from which it may be collected again. */
  #collectFromMs = 0;
  #isToBeCollected = false;
  /** What the process had beside what was held, when it had last returned what was free. */
  #restBytes: number;

  constructor(bytesMax: number, memory: ProcessMemory = heap) {
    this.#bytesMax = bytesMax;
    this.#memory = memory;
    this.#restBytes = memory.residentBytes();
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
      grow: (more, isThere = false, isForOperator = false) => {
        bytes += more;
        if (more < 0 && isThere) this.#dropped(-more);
        if (isOver || (bytes < bytesMin && counted === 0)) return;
        const bytesMax = this.#bytesMax * (isForOperator ? 1 + reserveShare : 1);
        if (more > 0 && this.#bytes + bytes - counted > bytesMax) {
          bytes -= more;
          if (isThere) this.#dropped(more);
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
            this.#dropped(counted);
          });
        }
        this.#bytes += bytes - counted;
        counted = bytes;
      },
    };
  }

  /** V8 collects large buffers late, and those of an attack all together would be over the limit. */
  #dropped(bytes: number): void {
    this.#garbageBytes += bytes;
    if (this.#isToBeCollected || this.#garbageBytes < this.#bytesMax * garbageShare) return;
    this.#isToBeCollected = true;
    // Not now: the caller still refers to what it drops.
    setTimeout(() => this.#clear(), this.#collectFromMs - performance.now()).unref();
  }

  #clear(): void {
    this.#isToBeCollected = false;
    this.#garbageBytes = 0;
    const beginMs = performance.now();
    this.#memory.collect();
    this.#returnFree();
    const endMs = performance.now();
    this.#collectFromMs = endMs + (endMs - beginMs) * (1 / collectingShare - 1);
  }

  /** The C library keeps up to 64 MB for each of its threads, of which decompressors and tensors come. */
  #returnFree(): void {
    const restBytes = (): number => this.#memory.residentBytes() - this.#bytes;
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
}
