import type { CpuOffer, HostTier, Given, FunctionId } from '../schedule/index.ts';

/** The simulator's state beside the GPUs: sessions on the CPU, and the disk behind the host tier. */
export class SimulatedSides {
  readonly #host: HostTier | undefined;
  /** By function with a session on the CPU: when it is ready; runs that come before wait for it. */
  readonly #sessionReadyMs = new Map<number, number>();
  readonly #beingRead = new Set<number>();
  #diskFreeMs = 0;

  constructor(host: HostTier | undefined) {
    this.#host = host;
  }

  hasSession(functionIndex: Given<FunctionId>): boolean {
    return this.#sessionReadyMs.has(functionIndex);
  }

  /** Time of a run on the CPU, including making its session, or waiting for one being made. */
  cpuMs(
    functionIndex: Given<FunctionId>,
    { latencyMs = 0, loadMs = 0 }: CpuOffer,
    loads: boolean,
    nowMs: number,
  ): number {
    if (loads) this.#sessionReadyMs.set(functionIndex, nowMs + loadMs);
    return Math.max(0, (this.#sessionReadyMs.get(functionIndex) ?? 0) - nowMs) + latencyMs;
  }

  /** When a session is ready that is made without a call. */
  makeSession(functionIndex: Given<FunctionId>, { loadMs = 0 }: CpuOffer, nowMs: number): number {
    this.#sessionReadyMs.set(functionIndex, nowMs + loadMs);
    return nowMs + loadMs;
  }

  closeSession(functionIndex: Given<FunctionId>): void {
    this.#sessionReadyMs.delete(functionIndex);
  }

  /** Returns when the function's bytes have been read from disk, which reads one function after the other. */
  stage(functionIndex: Given<FunctionId>, bytes: number, nowMs: number): number {
    this.#beingRead.add(functionIndex);
    this.#diskFreeMs = Math.max(nowMs, this.#diskFreeMs) + bytes / (this.#host!.diskGBps * 1e6);
    return this.#diskFreeMs;
  }

  staged(functionIndex: Given<FunctionId>): void {
    this.#beingRead.delete(functionIndex);
  }

  isBeingRead(functionIndex: Given<FunctionId>): boolean {
    return this.#beingRead.has(functionIndex);
  }
}
