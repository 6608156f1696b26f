/** Counts refused and failed requests over time, by status and error code. Steps without errors take no memory. */
import type { HistorySpan, RingOptions } from './ring.ts';

type Tier = Pick<RingOptions, 'stepMs' | 'steps'>;

export interface ErrorCount {
  readonly status: number;
  readonly code: string;
  readonly count: number;
  /** Start of the step with the latest one; steps are coarser in longer spans. */
  readonly lastMs: number;
}

/** Counts of a step, by `status code`. */
type Step = Map<string, number>;

export class ErrorHistory {
  readonly #tiers: readonly { readonly options: Tier; readonly steps: Map<number, Step> }[];
  readonly #latestMessages = new Map<string, string>();

  constructor(tiers: readonly Tier[]) {
    this.#tiers = tiers.map((options) => ({ options, steps: new Map() }));
  }

  add({ status, code, message }: Pick<ErrorCount, 'status' | 'code'> & { message: string }, atMs: number): void {
    const key = `${status} ${code}`;
    this.#latestMessages.set(code, message);
    for (const { options, steps } of this.#tiers) {
      const at = Math.floor(atMs / options.stepMs);
      let step = steps.get(at);
      if (step === undefined) {
        steps.set(at, (step = new Map()));
        for (const old of steps.keys()) if (old <= at - options.steps) steps.delete(old);
      }
      step.set(key, (step.get(key) ?? 0) + 1);
    }
  }

  /** Drops the steps after an instant. */
  forgetAfter(atMs: number): void {
    for (const { options, steps } of this.#tiers) {
      for (const at of steps.keys()) if (at * options.stepMs > atMs) steps.delete(at);
    }
  }

  /** What the client of the latest one was told. */
  latest(code: string): string | undefined {
    return this.#latestMessages.get(code);
  }

  /** Counts by status and code, the most frequent first. */
  causes(span: HistorySpan): ErrorCount[] {
    const causes = new Map<string, ErrorCount>();
    for (const [atMs, step] of this.#stepsIn(span)) {
      for (const [key, more] of step) {
        const [status = '', code = ''] = key.split(' ');
        const count = (causes.get(key)?.count ?? 0) + more;
        causes.set(key, { status: Number(status), code, count, lastMs: Math.max(causes.get(key)?.lastMs ?? 0, atMs) });
      }
    }
    return [...causes.values()].sort((a, b) => b.count - a.count || (a.code < b.code ? -1 : 1));
  }

  /** For each step, the errors of clients (4xx) and of the host (5xx). */
  columns(span: HistorySpan): { atMs: number[]; client: number[]; host: number[] } {
    const columns = { atMs: [] as number[], client: [] as number[], host: [] as number[] };
    const byTime = new Map(this.#stepsIn(span));
    for (let atMs = span.fromMs; atMs < span.toMs; atMs += span.stepMs) {
      const counts = { client: 0, host: 0 };
      for (const [key, count] of byTime.get(atMs) ?? []) counts[key < '500' ? 'client' : 'host'] += count;
      columns.atMs.push(atMs);
      columns.client.push(counts.client);
      columns.host.push(counts.host);
    }
    return columns;
  }

  #stepsIn({ stepMs, fromMs, toMs }: HistorySpan): [atMs: number, step: Step][] {
    const tier = this.#tiers.find(({ options }) => options.stepMs === stepMs);
    return [...(tier?.steps ?? [])]
      .map(([at, step]): [number, Step] => [at * stepMs, step])
      .filter(([atMs]) => atMs >= fromMs && atMs < toMs);
  }
}
