/** Time limits of what a process works on. */
import { CpuError } from '../types.ts';
import type { Phase } from './protocol.ts';
import type { RunLimits } from './tasks.ts';

/**
 * Applies a time limit to one thing at a time. Its timer is refreshed and keeps running between them: a new timer for
 * every run would cost more than the rest.
 */
export class Watchdog {
  #timer: NodeJS.Timeout | undefined;
  #limitMs = 0;
  #dueMs = 0;
  #expired: (() => void) | undefined;
  #look: NodeJS.Immediate | undefined;
  #grace: NodeJS.Timeout | undefined;

  /** From now on the limit applies to this. */
  arm(limitMs: number, expired: () => void): void {
    this.#expired = expired;
    this.#dueMs = performance.now() + limitMs;
    this.#endGrace();
    if (this.#timer !== undefined && this.#limitMs === limitMs) {
      this.#timer.refresh();
      return;
    }
    clearTimeout(this.#timer);
    this.#limitMs = limitMs;
    // The watched process has a channel, which keeps this process running.
    this.#timer = setTimeout(() => this.#pass(), limitMs).unref();
  }

  disarm(): void {
    this.#expired = undefined;
    this.#endGrace();
  }

  /**
   * Timers run before sockets. If this process itself was stopped or busy, the answer may be unread in a socket: it
   * gets as much time to be read as this process was late.
   */
  #pass(): void {
    if (this.#expired === undefined) return;
    const lateMs = performance.now() - this.#dueMs;
    this.#look = setImmediate(() => {
      this.#grace = setTimeout(() => this.#expired?.(), lateMs);
    });
  }

  #endGrace(): void {
    clearImmediate(this.#look);
    clearTimeout(this.#grace);
  }
}

export function limitMsOf(phase: Phase, { loadTimeoutMs, inferTimeoutMs, handlerTimeoutMs }: RunLimits): number {
  return phase === 'load' ? loadTimeoutMs : phase === 'infer' ? inferTimeoutMs : handlerTimeoutMs;
}

/** The error of a run that was stopped in this step. */
export function tookTooLong(phase: Phase, key: string, limits: RunLimits): CpuError {
  const limitMs = limitMsOf(phase, limits);
  if (phase === 'load') return new LoadTimeout(key, limitMs);
  const [code, what] =
    phase === 'infer' ? (['inference-timeout', 'a run of the model'] as const) : (['handler-timeout', phase] as const);
  return new CpuError(code, `${what} of ${key} took longer than ${limitMs} ms and was stopped`);
}

/** A load that exceeded its time limit. */
export class LoadTimeout extends CpuError {
  constructor(key: string, limitMs: number) {
    super('model-load-failed', `loading the model of ${key} took longer than ${limitMs} ms`);
  }
}
