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
  #stepMs = 0;
  #dueMs = 0;
  /** Steps of the timer until the limit is over. */
  #stepsLeft = 0;
  #expired: (() => void) | undefined;
  #halfway: (() => void) | undefined;
  #look: NodeJS.Immediate | undefined;
  #grace: NodeJS.Timeout | undefined;

  /** From now on the limit applies to this. @param halfway called once half of it is over */
  arm(limitMs: number, expired: () => void, halfway?: () => void): void {
    this.#expired = expired;
    this.#halfway = halfway;
    this.#stepsLeft = 2;
    this.#dueMs = performance.now() + limitMs;
    this.#endGrace();
    if (this.#timer !== undefined && this.#stepMs === limitMs / 2) {
      this.#timer.refresh();
      return;
    }
    clearTimeout(this.#timer);
    this.#stepMs = limitMs / 2;
    // The watched process has a channel, which keeps this process running.
    this.#timer = setTimeout(() => this.#pass(), this.#stepMs).unref();
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
    if (--this.#stepsLeft > 0) {
      this.#timer?.refresh();
      this.#halfway?.();
      return;
    }
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
