/** Evictions of a live host, told by the difference between two readings of its metrics. */
import type { ReplayObserver } from './types.ts';

const metricName = 'turntable_evictions_total';

/** Counts by function and cause, of the text form of Prometheus. */
export function parseEvictions(
  text: string,
): Map<string, { readonly name: string; readonly cause: string; count: number }> {
  const counts = new Map<string, { readonly name: string; readonly cause: string; count: number }>();
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${metricName}{`)) continue;
    const name = labelOf(line, 'function');
    const cause = labelOf(line, 'cause');
    const value = Number(
      line
        .slice(line.lastIndexOf('}') + 1)
        .trim()
        .split(/\s/)[0],
    );
    if (name === undefined || cause === undefined || !Number.isFinite(value)) continue;
    const key = `${name}\n${cause}`;
    const known = counts.get(key);
    if (known === undefined) counts.set(key, { name, cause, count: value });
    // The same function on several GPUs.
    else known.count += value;
  }
  return counts;
}

function labelOf(line: string, label: string): string | undefined {
  const quoted = new RegExp(`[{,]${label}="((?:[^"\\\\]|\\\\.)*)"`).exec(line)?.[1];
  return quoted?.replaceAll(/\\(.)/g, (_, character: string) => (character === 'n' ? '\n' : character));
}

/** Tells an observer of each eviction since the reading before. */
export class EvictionWatch {
  #before: ReturnType<typeof parseEvictions> | undefined;
  readonly #observer: ReplayObserver;
  readonly #indexOf: (name: string) => number | undefined;

  /** @param indexOf the trace's function of this name; evictions of others are not the replay's */
  constructor(observer: ReplayObserver, indexOf: (name: string) => number | undefined) {
    this.#observer = observer;
    this.#indexOf = indexOf;
  }

  /** The first reading only says where counting begins. */
  read(metrics: string, atMs: number): void {
    const now = parseEvictions(metrics);
    const before = this.#before;
    this.#before = now;
    if (before === undefined) return;
    for (const [key, { name, cause, count }] of now) {
      const functionIndex = this.#indexOf(name);
      if (functionIndex === undefined) continue;
      for (let more = count - (before.get(key)?.count ?? 0); more > 0; more--) {
        this.#observer.eviction({ atMs, gpu: -1, functionIndex, bytes: 0, cause });
      }
    }
  }
}
