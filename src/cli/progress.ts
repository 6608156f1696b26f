import { SingleBar } from 'cli-progress';
import { formatBytes, formatMs } from '../tools/index.ts';

export interface Progress extends Disposable {
  /** `done` of the total so far; `label` replaces what stands before the bar. */
  update(done: number, label?: string): void;
}

/** Shorter work shows no bar. */
const showAfterMs = 1000;

/** A bar over bytes on standard error, from the first second on; nothing when that is no terminal. */
export function startBytesProgress(label: string, totalBytes: number): Progress {
  return startBar(label, totalBytes, `{percentage}% of ${formatBytes(totalBytes)}`);
}

/** The same over a count of something; without a total, nothing. */
export function startCountProgress(label: string, total: number, what: string): Progress {
  return startBar(label, total, `{value} of {total} ${what}`);
}

/** Below this share of the work the rate so far predicts nothing. */
const tellFromShare = 0.02;

/**
 * ' | 12 s left' by the mean rate so far. Empty while that would be a guess, and once everything is sent: how long the
 * host still needs is unknown.
 */
export function timeLeft(done: number, total: number, passedMs: number): string {
  if (done >= total || done < tellFromShare * total) return '';
  return ` | ${formatMs(Math.max(1000, Math.round(((passedMs / done) * (total - done)) / 1000) * 1000))} left`;
}

function startBar(label: string, total: number, state: string): Progress {
  const stream = process.stderr;
  if (!stream.isTTY || total === 0) return { update: () => undefined, [Symbol.dispose]: () => undefined };
  const startedMs = performance.now();
  let bar: SingleBar | undefined;
  return {
    update(done, nextLabel = label) {
      const passedMs = performance.now() - startedMs;
      if (bar === undefined) {
        if (passedMs < showAfterMs) return;
        bar = new SingleBar({
          stream,
          format: `{label} [{bar}] ${state}{left}`,
          barsize: 24,
          hideCursor: true,
          clearOnComplete: true,
        });
        bar.start(total, done, { label: nextLabel, left: '' });
      }
      // A scaled trace may come out a little longer than expected.
      if (done > bar.getTotal()) bar.setTotal(done);
      bar.update(done, { label: nextLabel, left: timeLeft(done, bar.getTotal(), passedMs) });
    },
    [Symbol.dispose]() {
      bar?.stop();
      bar = undefined;
    },
  };
}
