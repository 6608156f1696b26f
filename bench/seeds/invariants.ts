/** Invariants after every event, beside those that the model itself checks (test/support/scheduler-model.ts). */
import { variantNamed, wholeBytes } from '../../src/schedule/index.ts';
import type { ModelView } from '../../test/support/scheduler-model.ts';

/** Events for each arrival and each operation; a scheduler that keeps waking itself exceeds it. */
const eventsMax = 20_000;

export class Invariants {
  /** Their layers may be those of a former plan, which only the scheduler knows. */
  readonly #changed = new Set<number>();
  #events = 0;

  sheetChanged(functionIndex: number): void {
    this.#changed.add(functionIndex);
  }

  /** Throws at the first invariant that does not hold. */
  check(view: ModelView): void {
    if (++this.#events > eventsMax) throw new Error(`${eventsMax} events, and no end`);
    this.#checkGpusBusy(view);
    this.#checkSidesBusy(view);
  }

  /**
   * No GPU idles while an invocation waits there for a function that is completely loaded. Exception: the invocation is
   * late, and would make one late whose function is being loaded; the lane is kept for that one.
   */
  #checkGpusBusy(view: ModelView): void {
    const { invocations, isUp, running, sheets, options } = view;
    // First come, first served: the first may have to wait for a load.
    if (options.policy.order === 'fifo') return;
    for (const [invocation, { state, place: gpu, functionIndex }] of invocations) {
      if (state !== 'waiting' || typeof gpu !== 'number' || !isUp[gpu] || running[gpu] !== undefined) continue;
      const there = view.there(functionIndex, gpu);
      const top = sheets.get(functionIndex)?.gpus[gpu];
      if (there === undefined || !top || view.isLoading(functionIndex, gpu) || this.#changed.has(functionIndex))
        continue;
      if (view.unread.has(functionIndex)) continue;
      const offer = variantNamed(top, there.plan);
      if (offer.plan === there.plan && wholeBytes(offer) === there.bytes) {
        if (!isInTime(view, invocation, offer.warmMs) && keepsLane(view, gpu, offer.warmMs)) continue;
        throw new Error(`GPU ${gpu} idles, and invocation ${invocation} waits there for a function that is there`);
      }
    }
  }

  /** The same for all cores and all workers. */
  #checkSidesBusy({ invocations, onCpu, onWorkers, making, options, sheets }: ModelView): void {
    for (const [invocation, { state, place, functionIndex }] of invocations) {
      if (state !== 'waiting' || typeof place === 'number') continue;
      if (place === 'workers' && onWorkers.size === 0 && (options.workers?.slots ?? 0) > 0) {
        throw new Error(`the workers idle, and invocation ${invocation} waits for them`);
      }
      const offer = sheets.get(functionIndex)?.cpu;
      const fits = offer && options.cpu && offer.cores <= options.cpu.cores;
      // A session that is made may have the memory that it waits for.
      if (place === 'cpu' && onCpu.size + making.size === 0 && fits) {
        throw new Error(`the CPU idles, and invocation ${invocation} waits for it`);
      }
    }
  }
}

/** Whether a run of this length from now on would end within the SLO. */
function isInTime({ invocations, sheets, nowMs }: ModelView, invocation: number, ms: number): boolean {
  const { functionIndex, arrivalMs } = invocations.get(invocation)!;
  return nowMs + ms <= arrivalMs + sheets.get(functionIndex)!.sloMs;
}

/** Whether a run of this length would make an invocation late whose function is being loaded. */
function keepsLane(view: ModelView, gpu: number, warmMs: number): boolean {
  const { invocations, sheets, nowMs } = view;
  for (const [invocation, { state, place: at, functionIndex, arrivalMs }] of invocations) {
    if (state !== 'waiting' || at !== gpu || !view.isLoading(functionIndex, gpu)) continue;
    const sheet = sheets.get(functionIndex)!;
    // Only the scheduler knows which of its plans is being loaded.
    let leastMs = Infinity;
    let mostMs = 0;
    for (let variant = sheet.gpus[gpu] ?? undefined; variant !== undefined; variant = variant.smaller) {
      leastMs = Math.min(leastMs, variant.warmMs);
      mostMs = Math.max(mostMs, variant.warmMs);
    }
    if (isInTime(view, invocation, leastMs) && nowMs + warmMs + mostMs > arrivalMs + sheet.sloMs) return true;
  }
  return false;
}
