/** What has been measured of a function so far, in one sitting or several. */
import type { ServiceConfiguration } from '../../../profile/index.ts';
import type { CpuProfile, IdleCost, MeasuredList, ServiceVariation } from '../predict/index.ts';
import type { Measurement } from './measurements.ts';

export class Findings {
  /** One instance alone, by threads and batch: the median, and how far the samples lie apart. */
  readonly #alone = new Map<string, { readonly ms: number; readonly spread: number }>();
  readonly #configurations: ServiceConfiguration[] = [];
  readonly variation: ServiceVariation[] = [];
  readonly idle: IdleCost[] = [];
  readonly lists: MeasuredList[] = [];
  /** Batches whose lists were measured; a batch may have none. */
  readonly #divided = new Set<number>();
  dispatchMs: number | undefined;

  /** @param before what earlier sittings found */
  constructor(before?: CpuProfile) {
    if (before === undefined) return;
    const { pool, spread, service, dispatchMs } = before;
    for (const [row, threads] of pool.threads.entries()) {
      for (const [column, batch] of pool.batches.entries()) {
        const ms = pool.latency[row]?.[column] ?? undefined;
        if (ms !== undefined) this.alone(threads, batch, ms, spread[row]?.[column] ?? 0);
      }
    }
    this.idle.push(...before.idle);
    this.besides(
      service.configurations.filter(({ threads }) => this.#isBeside(threads)),
      before.variation,
      [],
    );
    for (const { batch } of before.lists) this.#divided.add(batch);
    this.lists.push(...before.lists);
    if (dispatchMs > 0) this.dispatchMs = dispatchMs;
  }

  has(measurement: Measurement): boolean {
    switch (measurement.kind) {
      case 'alone':
        return this.aloneMs(measurement.threads, measurement.batch) !== undefined;
      case 'service':
        return this.#isBeside(measurement.threads);
      case 'dispatch':
        return this.dispatchMs !== undefined;
      case 'lists':
        return this.#divided.has(measurement.batch);
    }
  }

  aloneMs(threads: number, batch: number): number | undefined {
    return this.#alone.get(`${threads} ${batch}`)?.ms;
  }

  alone(threads: number, batch: number, ms: number, spread: number): void {
    this.#alone.set(`${threads} ${batch}`, { ms, spread: Number(spread.toFixed(4)) });
  }

  /** Like instances beside each other. */
  besides(
    configurations: readonly ServiceConfiguration[],
    variation: readonly ServiceVariation[],
    idle: readonly IdleCost[],
  ): void {
    this.#configurations.push(...configurations);
    this.variation.push(...variation);
    this.idle.push(...idle);
  }

  divided(batch: number, lists: readonly MeasuredList[]): void {
    this.#divided.add(batch);
    this.lists.push(...lists);
  }

  /** Those measured beside each other, and of other threads one instance alone. */
  configurations(threads: readonly number[], batch: number): ServiceConfiguration[] {
    const singles = threads.flatMap((count) => {
      const ms = this.#isBeside(count) ? undefined : this.aloneMs(count, batch);
      return ms === undefined ? [] : [{ concurrency: 1, threads: count, serviceTime: [ms] }];
    });
    return [...this.#configurations, ...singles];
  }

  tables(threads: readonly number[], batches: readonly number[]): Pick<CpuProfile, 'pool' | 'spread'> {
    const found = threads.map((count) => batches.map((batch) => this.#alone.get(`${count} ${batch}`)));
    return {
      pool: { unit: 'ms', threads, batches, latency: found.map((row) => row.map((each) => each?.ms ?? null)) },
      spread: found.map((row) => row.map((each) => each?.spread ?? null)),
    };
  }

  #isBeside(threads: number): boolean {
    return this.idle.some((cost) => cost.threads === threads);
  }
}
