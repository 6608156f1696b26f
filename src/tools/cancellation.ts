/** An AbortSignal, or a {@link Cancellation}. */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** An AbortController and its signal for one reader, without what these cost each call: an event target and its listeners. */
export class Cancellation implements CancelSignal {
  aborted = false;
  #listener: (() => void) | undefined;

  /** Replaces the one before. */
  addEventListener(_type: 'abort', listener: () => void): void {
    this.#listener = listener;
  }

  removeEventListener(): void {
    this.#listener = undefined;
  }

  abort(): void {
    if (this.aborted) return;
    this.aborted = true;
    this.#listener?.();
  }
}
