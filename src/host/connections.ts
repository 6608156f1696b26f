/** Limits the open connections, so that the host can still open files, and no address has all of them. */
import type { Socket } from 'node:net';
import { HostError } from '../errors.ts';

/** A refused client may still send its request, and is told why; more of them are cut off at once. */
const refusedMax = 32;
const refusedMsMax = 1000;
const warnEveryMs = 60_000;

export class ConnectionLimit {
  readonly #max: number;
  readonly #warn: (facts: object, message: string) => void;
  readonly #byAddress = new Map<string, number>();
  readonly #refused = new Map<Socket, HostError>();
  #open = 0;
  #warnedAtMs = -Infinity;
  #refusals = 0;

  constructor(max: number, warn: (facts: object, message: string) => void) {
    this.#max = max;
    this.#warn = warn;
  }

  /** Counts a new connection until it closes, or refuses it. */
  accept(socket: Socket): void {
    const address = socket.remoteAddress ?? '';
    const ofAddress = this.#byAddress.get(address) ?? 0;
    const ofAddressMax = Math.ceil(this.#max / 2);
    if (this.#open < this.#max && ofAddress < ofAddressMax) {
      this.#open++;
      this.#byAddress.set(address, ofAddress + 1);
      socket.once('close', () => this.#closed(address));
      return;
    }
    const isAll = this.#open >= this.#max;
    const reason = isAll
      ? `${this.#max} connections are open, which is this host's limit (limits.connections)`
      : `${ofAddressMax} connections of this address are open, half of this host's limit (limits.connections)`;
    this.#refuse(socket, new HostError('too-many-connections', reason), address);
  }

  /** Why the connection was refused; undefined if it was not. */
  refusal(socket: Socket): HostError | undefined {
    return this.#refused.get(socket);
  }

  #refuse(socket: Socket, refusal: HostError, address: string): void {
    this.#refusals++;
    const nowMs = performance.now();
    if (nowMs - this.#warnedAtMs >= warnEveryMs) {
      this.#warnedAtMs = nowMs;
      this.#warn({ address, refusals: this.#refusals }, `connections are refused: ${refusal.message}`);
    }
    if (this.#refused.size >= refusedMax) {
      socket.destroy();
      return;
    }
    this.#refused.set(socket, refusal);
    const timer = setTimeout(() => socket.destroy(), refusedMsMax).unref();
    socket.once('close', () => {
      clearTimeout(timer);
      this.#refused.delete(socket);
    });
  }

  #closed(address: string): void {
    this.#open--;
    const left = this.#byAddress.get(address)! - 1;
    if (left === 0) this.#byAddress.delete(address);
    else this.#byAddress.set(address, left);
  }
}
