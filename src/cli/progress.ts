import { SingleBar } from 'cli-progress';
import { formatBytes } from './format.ts';

export interface Progress {
  /** `done` of the total so far; `label` replaces what stands before the bar. */
  update(done: number, label?: string): void;
  /** Takes the bar away, so that the result stands alone. */
  stop(): void;
}

/** Shorter work does not flash a bar. */
const showAfterMs = 1000;

/** A bar over bytes on standard error, from the first second on; nothing when that is no terminal. */
export function startBytesProgress(label: string, totalBytes: number, stream = process.stderr): Progress {
  if (!stream.isTTY) return { update: () => undefined, stop: () => undefined };
  const startedMs = performance.now();
  let bar: SingleBar | undefined;
  return {
    update(done, nextLabel = label) {
      if (bar === undefined) {
        if (performance.now() - startedMs < showAfterMs) return;
        bar = new SingleBar({
          stream,
          format: '{label} [{bar}] {percentage}% of {size} | {eta_formatted} left',
          barsize: 24,
          hideCursor: true,
          clearOnComplete: true,
        });
        bar.start(totalBytes, done, { label: nextLabel, size: formatBytes(totalBytes) });
      }
      bar.update(done, { label: nextLabel });
    },
    stop() {
      bar?.stop();
      bar = undefined;
    },
  };
}

/** The same over a count of something; without a total, nothing. */
export function startCountProgress(label: string, total: number, what: string, stream = process.stderr): Progress {
  if (!stream.isTTY || total === 0) return { update: () => undefined, stop: () => undefined };
  const startedMs = performance.now();
  let bar: SingleBar | undefined;
  return {
    update(done, nextLabel = label) {
      if (bar === undefined) {
        if (performance.now() - startedMs < showAfterMs) return;
        const format = `{label} [{bar}] {value} of {total} ${what} | {eta_formatted} left`;
        bar = new SingleBar({ stream, format, barsize: 24, hideCursor: true, clearOnComplete: true });
        bar.start(total, done, { label: nextLabel });
      }
      // A scaled trace may come out a little longer than expected.
      if (done > bar.getTotal()) bar.setTotal(done);
      bar.update(done, { label: nextLabel });
    },
    stop() {
      bar?.stop();
      bar = undefined;
    },
  };
}
