import type { CpuOffer, HostTier, Given, FunctionId } from '../schedule/index.ts';

/** The simulator's state beside the GPUs: sessions on the CPU, and the disk behind the host tier. */
export class SimulatedSides {
  readonly #host: HostTier | undefined;
  /** By function with a session on the CPU: when it is ready; runs that come before wait for it. */
  readonly #sessionReadyMs = new Map<number, number>();
  /** Memory of all sessions. */
  #sessionBytes = 0;
  readonly #beingRead = new Set<number>();
  #diskFreeMs = 0;

  constructor(host: HostTier | undefined) {
    this.#host = host;
  }

  get sessionBytes(): number {
    return this.#sessionBytes;
  }

  /** Sessions that no run makes, and such as have gone. */
  add(bytes: number): void {
    this.#sessionBytes += bytes;
  }

  hasSession(functionIndex: Given<FunctionId>): boolean {
    return this.#sessionReadyMs.has(functionIndex);
  }

  /** Time of a run on the CPU, including making its session, or waiting for one being made. */
  cpuMs(functionIndex: Given<FunctionId>, offer: CpuOffer, loads: boolean, nowMs: number): number {
    if (loads) this.makeSession(functionIndex, offer, nowMs);
    return Math.max(0, this.readyMs(functionIndex) - nowMs) + (offer.latencyMs ?? 0);
  }

  /** When its session is there, or was. */
  readyMs(functionIndex: Given<FunctionId>): number {
    return this.#sessionReadyMs.get(functionIndex) ?? 0;
  }

  /** Returns when the session is ready. */
  makeSession(functionIndex: Given<FunctionId>, offer: CpuOffer, nowMs: number): number {
    const readyMs = this.makeSpare(offer, nowMs);
    this.#sessionReadyMs.set(functionIndex, readyMs);
    return readyMs;
  }

  /** A function that has a session gets another. */
  makeSpare({ loadMs = 0, bytes = 0 }: CpuOffer, nowMs: number): number {
    this.#sessionBytes += bytes;
    return nowMs + loadMs;
  }

  closeSession(functionIndex: Given<FunctionId>, bytes: number, isSpare = false): void {
    this.#sessionBytes -= bytes;
    if (!isSpare) this.#sessionReadyMs.delete(functionIndex);
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
