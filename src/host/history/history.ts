/**
 * The host's traffic of the last day, in bounded memory: in total, and in coarser steps for each function. The
 * dashboard draws it; Prometheus can keep longer histories.
 */
import type { DiskWait, PoolTimings } from '../../cpu/index.ts';
import { placementText, ranOn, type InvocationRecord, type InvocationRecorder } from '../calls/placement.ts';
import { getOrMake } from '../../tools/index.ts';
import { ErrorHistory } from './error-history.ts';
import { EventLog } from './event-log.ts';
import {
  causeNames,
  countIn,
  countNames,
  indexOf,
  partNames,
  Ring,
  type CauseName,
  type CountName,
  type Ended,
  type HistorySpan,
  type PartName,
  type RingOptions,
  coarseScale,
  fineScale,
  quantileMs,
} from './ring.ts';

/** A quarter of an hour by the second, two hours by ten seconds, a day by the minute. */
const overallTiers: readonly RingOptions[] = [
  { stepMs: 1000, steps: 960, scale: fineScale },
  { stepMs: 10_000, steps: 760, scale: fineScale },
  { stepMs: 60_000, steps: 1500, scale: fineScale },
];
/** An hour by ten seconds, a day by four minutes: about 100 kB for a function that is busy all day. */
const functionTiers: readonly RingOptions[] = [
  { stepMs: 10_000, steps: 400, scale: coarseScale },
  { stepMs: 240_000, steps: 370, scale: coarseScale },
];

/** Columns of equal length, one entry a step; latencies are null in steps in which no call ended. */
export type TrafficColumns = Readonly<Record<CountName, readonly number[]>> & {
  /** Start of each step. */
  readonly atMs: readonly number[];
  readonly p50Ms: readonly (number | null)[];
  readonly p99Ms: readonly (number | null)[];
};

/** Counts of one step of time or of a whole span. */
export interface TrafficTotals extends Readonly<Record<CountName, number>> {
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
}

/** Means over one window. */
export interface PredictionPoint {
  readonly atMs: number;
  readonly predictedMs: number;
  readonly observedMs: number;
}

/** Counts of a span, with the causes of missed SLOs, the milliseconds beyond them, and the waits for the disk. */
export type HistoryCounts = Record<CountName | CauseName | 'lateMs' | 'unexplainedMs' | 'diskBytes' | 'diskMs', number>;

/** An hour of windows of ten seconds. */
const predictionsKept = 360;

/** Calls end in another order than their ends by the clock, by less than this. */
const setBackMs = 60_000;

export class History implements InvocationRecorder {
  readonly eventLog = new EventLog();
  readonly errors = new ErrorHistory(overallTiers);
  readonly #overall = overallTiers.map((tier) => new Ring(tier));
  readonly #functions = new Map<string, Ring[]>();
  #functionBytes = 0;
  readonly #onGrown = (bytes: number): void => void (this.#functionBytes += bytes);
  /** When each second of the finest tier was last counted in; same slots as in the ring. */
  readonly #countedAtMs = new Float64Array(overallTiers[0]!.steps).fill(-1);
  /** Converts an instant of performance.now() to a time of day. */
  readonly #timeOfDay: (instantMs: number) => number;
  readonly #predictions = new Map<string, PredictionPoint[]>();
  /** Late answers of this second by function: one event a second, not one for each. */
  readonly #breaches = new Map<string, { second: number; late: number }>();
  readonly #started = performance.now();
  #latestMs = -Infinity;

  constructor(timeOfDay: (instantMs: number) => number = timeOfDayNow) {
    this.#timeOfDay = timeOfDay;
  }

  /** Nothing was counted before this time. */
  get startedAtMs(): number {
    return this.#timeOfDay(this.#started);
  }

  record(record: InvocationRecord): void {
    const arrivalMs = this.#timeOfDay(record.arrivalMs);
    const endMs = arrivalMs + record.latencyMs;
    this.#at(endMs);
    const rings = this.#ringsOf(record.functionName);
    const ended = endedOf(record);
    for (const tiers of [this.#overall, rings]) {
      for (const ring of tiers) {
        ring.count('offered', arrivalMs);
        ring.ended(ended, endMs);
      }
    }
    for (const atMs of [arrivalMs, endMs])
      this.#countedAtMs[Math.floor(atMs / 1000) % this.#countedAtMs.length] = endMs;
    const { ran } = record;
    if (ran?.result.coldStart === true) {
      this.eventLog.add(
        {
          kind: 'cold-start',
          functionName: record.functionName,
          placement: placementText(ran.placement),
          loadMs: ran.result.timings.loadMs,
          latencyMs: record.latencyMs,
          withinSlo: record.outcome === 'in_slo',
        },
        endMs,
      );
    }
    if (record.outcome === 'late') this.#late(record, endMs);
  }

  /** Records the predicted and observed latency of a window. */
  predicted(functionName: string, predictedMs: number, observedMs: number, atMs: number = Date.now()): void {
    const points = getOrMake(this.#predictions, functionName, () => []);
    points.push({ atMs, predictedMs, observedMs });
    if (points.length > predictionsKept) points.shift();
  }

  /** Predictions, the newest last. */
  predictions(functionName: string): readonly PredictionPoint[] {
    return this.#predictions.get(functionName) ?? [];
  }

  /** Memory of the functions' steps: it grows with the functions that are called, and for a day. */
  get functionBytes(): number {
    return this.#functionBytes;
  }

  forget(functionName: string): void {
    for (const { usedBytes } of this.#functions.get(functionName) ?? []) this.#functionBytes -= usedBytes;
    this.#functions.delete(functionName);
    this.#breaches.delete(functionName);
    this.#predictions.delete(functionName);
    this.eventLog.forget(functionName);
  }

  /** Steps and span of the finest tier that still holds `rangeMs`. */
  span(rangeMs: number, nowMs: number, functionName?: string): HistorySpan {
    const tiers = functionName === undefined ? overallTiers : functionTiers;
    const tier = tiers.find(({ stepMs, steps }) => stepMs * (steps - 2) >= rangeMs) ?? tiers.at(-1)!;
    const toStep = Math.floor(nowMs / tier.stepMs);
    const steps = Math.max(1, Math.min(tier.steps - 1, Math.ceil(rangeMs / tier.stepMs)));
    return { stepMs: tier.stepMs, fromMs: (toStep - steps + 1) * tier.stepMs, toMs: (toStep + 1) * tier.stepMs };
  }

  /**
   * Seconds before `atMs` in which something was counted at `sinceMs` or later, in order. An invocation counts as
   * offered only when it has ended, but in the second in which it came.
   */
  countedSince(sinceMs: number, atMs: number): number[] {
    const length = this.#countedAtMs.length;
    const seconds = Array.from({ length: length - 1 }, (_, index) => atMs / 1000 - (length - 1) + index);
    return seconds.filter((second) => this.#countedAtMs[second % length]! >= sinceMs).map((second) => second * 1000);
  }

  columns({ stepMs, fromMs, toMs }: HistorySpan, functionName?: string): TrafficColumns {
    const ring = this.#ring(stepMs, functionName);
    const [atMs, p50Ms, p99Ms] = [[] as number[], [] as (number | null)[], [] as (number | null)[]];
    const columns = { atMs, p50Ms, p99Ms, ...byCount((): number[] => []) };
    for (let step = fromMs / stepMs; step < toMs / stepMs; step++) {
      const counts = ring?.counts(step);
      const latencies = ring?.latencies(step);
      columns.atMs.push(step * stepMs);
      for (const name of countNames) columns[name].push(counts === undefined ? 0 : countIn(counts, name));
      columns.p50Ms.push(latencies === undefined ? null : (quantileMs(ring!.scale, latencies, 0.5) ?? null));
      columns.p99Ms.push(latencies === undefined ? null : (quantileMs(ring!.scale, latencies, 0.99) ?? null));
    }
    return columns;
  }

  /** Milliseconds that each part of the mean answer took, for each step; 0 in steps without an answer. */
  meanParts({ stepMs, fromMs, toMs }: HistorySpan, functionName?: string): Record<PartName, number[]> {
    const ring = this.#ring(stepMs, functionName);
    const parts = Object.fromEntries(partNames.map((name) => [name, [] as number[]])) as Record<PartName, number[]>;
    for (let step = fromMs / stepMs; step < toMs / stepMs; step++) {
      const counts = ring?.counts(step);
      const answers = ring?.answers(step) ?? 0;
      for (const name of partNames)
        parts[name].push(counts === undefined || answers === 0 ? 0 : countIn(counts, name) / 10 / answers);
    }
    return parts;
  }

  totals(span: HistorySpan, functionName?: string): TrafficTotals {
    const totals = byCount(() => 0);
    // Most functions of many have no past.
    if (this.#ring(span.stepMs, functionName) === undefined) return { ...totals, p50Ms: null, p99Ms: null };
    const counted = this.counts(span, functionName);
    for (const name of countNames) totals[name] = counted[name];
    const { scale, counts } = this.distribution(span, functionName);
    return {
      ...totals,
      p50Ms: quantileMs(scale, counts, 0.5) ?? null,
      p99Ms: quantileMs(scale, counts, 0.99) ?? null,
    };
  }

  counts({ stepMs, fromMs, toMs }: HistorySpan, functionName?: string): HistoryCounts {
    const names = [...countNames, ...causeNames];
    const sumNames = [...names, 'lateMs', 'unexplainedMs', 'diskBytes', 'diskMs'];
    const totals = Object.fromEntries(sumNames.map((name) => [name, 0])) as HistoryCounts;
    const ring = this.#ring(stepMs, functionName);
    if (ring === undefined) return totals;
    const sums = ring.sums(fromMs / stepMs, toMs / stepMs);
    for (const name of names) totals[name] = countIn(sums, name);
    totals.lateMs = countIn(sums, 'lateTenths') / 10;
    totals.unexplainedMs = countIn(sums, 'unexplainedTenths') / 10;
    totals.diskBytes = countIn(sums, 'diskKibibytes') * 1024;
    totals.diskMs = countIn(sums, 'diskTenths') / 10;
    return totals;
  }

  distribution({ stepMs, fromMs, toMs }: HistorySpan, functionName?: string) {
    const ring = this.#ring(stepMs, functionName);
    const scale = functionName === undefined ? fineScale : coarseScale;
    const counts = Array.from({ length: scale.count }, () => 0);
    if (ring === undefined) return { scale, counts };
    for (let step = fromMs / stepMs; step < toMs / stepMs; step++) {
      const latencies = ring.latencies(step);
      if (latencies !== undefined) for (let at = 0; at < scale.count; at++) counts[at]! += latencies[at]!;
    }
    return { scale, counts };
  }

  /** A call that ended by its client's mistake or disconnect before it had become an invocation. */
  refused(functionName: string, atMs = performance.now()): void {
    const timeMs = this.#timeOfDay(atMs);
    this.#at(timeMs);
    for (const ring of [...this.#overall, ...this.#ringsOf(functionName)]) ring.count('client', timeMs);
  }

  /** An instance of the function waited so long for the disk. */
  readDisk(functionName: string, { bytes, ms }: Omit<DiskWait, 'key'>): void {
    const atMs = Date.now();
    for (const ring of this.#ringsOf(functionName)) {
      ring.count('diskKibibytes', atMs, bytes / 1024);
      ring.count('diskTenths', atMs, ms * 10);
    }
  }

  /**
   * Where the clock was set back, what was counted by the clock before would hold its slots until that time comes once
   * more, and new calls would not be counted.
   */
  #at(timeMs: number): void {
    if (timeMs < this.#latestMs - setBackMs) {
      for (const ring of [...this.#overall, ...[...this.#functions.values()].flat()]) ring.forgetAfter(timeMs);
      this.errors.forgetAfter(timeMs);
      this.#countedAtMs.forEach((countedMs, slot) => {
        if (countedMs > timeMs) this.#countedAtMs[slot] = -1;
      });
      this.#latestMs = timeMs;
    } else if (timeMs > this.#latestMs) this.#latestMs = timeMs;
  }

  #ringsOf(functionName: string): Ring[] {
    return getOrMake(this.#functions, functionName, () => functionTiers.map((tier) => new Ring(tier, this.#onGrown)));
  }

  #ring(stepMs: number, functionName: string | undefined): Ring | undefined {
    const rings = functionName === undefined ? this.#overall : this.#functions.get(functionName);
    return rings?.find((ring) => ring.stepMs === stepMs);
  }

  #late({ functionName, sloMs }: InvocationRecord, atMs: number): void {
    const second = Math.floor(atMs / 1000);
    const breach = getOrMake(this.#breaches, functionName, () => ({ second: -1, late: 0 }));
    breach.late++;
    if (breach.second === second) return;
    this.eventLog.add({ kind: 'slo-breach', functionName, late: breach.late, sloMs }, atMs);
    breach.second = second;
    breach.late = 0;
  }
}

/** By the current clock, which may have been set since the process began. */
const timeOfDayNow = (instantMs: number): number => Date.now() - (performance.now() - instantMs);

/** What to count, computed once for all rings. */
function endedOf(record: InvocationRecord): Ended {
  const { outcome, latencyMs, miss, ran } = record;
  const counted: number[] = [indexOf[outcome ?? 'client']];
  const parts = partsOf(record);
  // Shed and failed calls count as such already.
  if (outcome === 'late' && miss !== undefined) counted.push(indexOf[miss.cause]);
  if (ran === undefined) return { counted, miss, answer: undefined };
  if (ran.result.coldStart) counted.push(indexOf.cold);
  counted.push(indexOf[ranOn(ran.placement)]);
  const tenths = parts.map((ms) => Math.max(0, Math.round(ms * 10)));
  return { counted, miss, answer: { tenths, latencyMs } };
}

/** In the order of {@link partNames}. */
function partsOf({ latencyMs, ran }: InvocationRecord): readonly number[] {
  const timings: Partial<PoolTimings> = ran?.result.timings ?? {};
  const { queueMs = 0, loadMs = 0, preprocessMs = 0, inferMs = 0, postprocessMs = 0 } = timings;
  const handlerMs = preprocessMs + postprocessMs;
  return [queueMs, loadMs, handlerMs, inferMs, latencyMs - queueMs - loadMs - handlerMs - inferMs];
}

function byCount<T>(make: () => T): Record<CountName, T> {
  return Object.fromEntries(countNames.map((name) => [name, make()])) as Record<CountName, T>;
}
