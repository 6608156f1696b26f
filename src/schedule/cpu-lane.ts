import type { CpuOffer } from './offer.ts';

/** The cores that offloaded invocations share. */
export class CpuLane {
  readonly #cores: number;
  #busyCores = 0;
  /** Core milliseconds of offloaded invocations that have not ended. */
  #outstandingMs = 0;

  constructor(cores: number) {
    this.#cores = cores;
  }

  /** When an invocation that is offloaded now would end. */
  predictEnd({ latencyMs, cores }: CpuOffer, nowMs: number): number {
    const isFree = this.#busyCores + cores <= this.#cores;
    return nowMs + latencyMs + (isFree ? 0 : this.#outstandingMs / this.#cores);
  }

  take({ latencyMs, cores }: CpuOffer): void {
    this.#busyCores += cores;
    this.#outstandingMs += latencyMs * cores;
  }

  /** @param offer the one that was taken, whatever the function offers by now. */
  release({ latencyMs, cores }: CpuOffer): void {
    this.#busyCores -= cores;
    this.#outstandingMs -= latencyMs * cores;
  }
}
