import type { CpuError } from '../types.ts';

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: CpuError) => void;
  readonly handlerOnly: boolean;
}

/** Who waits for an instance to be ready, without a call. */
export class LoadWaiters {
  readonly #waiters: Waiter[] = [];

  get length(): number {
    return this.#waiters.length;
  }

  /** Whether the handler alone is enough for all of them. */
  get handlerSuffices(): boolean {
    return this.#waiters.every(({ handlerOnly }) => handlerOnly);
  }

  add(handlerOnly: boolean): Promise<void> {
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject, handlerOnly }));
  }

  resolve(): void {
    for (const waiter of this.#waiters.splice(0)) waiter.resolve();
  }

  reject(error: CpuError): void {
    for (const waiter of this.#waiters.splice(0)) waiter.reject(error);
  }
}
