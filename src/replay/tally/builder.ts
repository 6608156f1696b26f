import type { Given, FunctionId, GpuId } from '../../schedule/index.ts';
import {
  verdictOf,
  type FleetRow,
  type FunctionRow,
  type GpuRow,
  type HopelessFunction,
  type HostMemoryRow,
  type IntervalRow,
  type Judged,
  type LeastTimes,
  type ModelRow,
  type Report,
  type SettingValue,
} from '../../report/index.ts';
import { count, getOrMake, given } from '../../tools/index.ts';
import type {
  EvictionRecord,
  Outcome,
  ListChangeRecord,
  PlanChangeRecord,
  ReplayObserver,
  StageRecord,
  TraceInvocation,
} from '../types.ts';
import { IntervalSeries, joined, type Interval } from './series.ts';
import { Sketch } from './sketch.ts';
import { finite, PredictionCounter, rounded, SloCounter, sortedRecord, TallyCounter } from './tally.ts';

/** Percentiles of the whole are exact up to this many answers (1 MB); then within 0.05%. */
const wholeSketch = { exactMax: 2 ** 17, precisionBits: 10 } as const;
const functionSketch = { exactMax: 64, precisionBits: 7 } as const;
/** For a trace of fifty thousand functions: a few hundred bytes each. */
const smallFunctionSketch = { exactMax: 64, precisionBits: 4 } as const;
const preciseFunctions = 4096;
const minuteMs = 60_000;
/** A host may give any reason; a report limits how many it lists. */
const reasonsMax = 50;
/** Functions or models that a sentence names. */
const namedMax = 5;

interface HostMemory {
  readonly capacityBytes: number;
  readonly functionsBytes: number;
  readonly diskCapacityBytes?: number | undefined;
  /** Functions that were there at the start; left out: all of them. */
  readonly filledFunctions?: number | undefined;
}

export interface ReportContext {
  readonly kind: 'simulated' | 'measured';
  readonly machine: string;
  readonly seed: number | null;
  readonly settings: Readonly<Record<string, SettingValue>>;
  readonly functionNames: readonly string[];
  /** The model of a function, to sum up its instances; default: its own name. */
  readonly modelOf?: (functionIndex: Given<FunctionId>) => string;
  /** GPUs of the machine, used or not. */
  readonly gpuCount?: number;
  /** Set if the machine's host memory was part of the replay: its size, and the total weights of all functions. */
  readonly hostMemory?: HostMemory;
  /** Set if several hosts were replayed. */
  readonly fleet?: FleetRow;
  /** For the verdict; undefined for a function whose calls have SLOs of their own. */
  readonly leastTimesOf?: (functionIndex: Given<FunctionId>) => LeastTimes | undefined;
  /** Warnings about the load. */
  readonly warnings?: readonly string[];
}

interface BuilderOptions {
  readonly fromMs?: number;
  readonly onMeasured?: ((outcome: Outcome) => void) | undefined;
}

/** Builds a report while a replay runs. Its memory grows with the functions, not with the length of the trace. */
export class ReportBuilder implements ReplayObserver {
  #fromMs: number;
  readonly #onMeasured: ((outcome: Outcome) => void) | undefined;
  #endMs = -Infinity;
  #firstArrivalMs = Infinity;
  #lastArrivalMs = -Infinity;
  #warmupRequests = 0;
  readonly #whole = new TallyCounter(wholeSketch);
  readonly #queueMs = new Sketch({ exactMax: 2 ** 12, precisionBits: 9 });
  readonly #functions: (TallyCounter | undefined)[] = [];
  readonly #calledInWarmup = new Set<number>();
  readonly #series = new IntervalSeries();
  readonly #gpus: { requests: number; coldStarts: number; evictions: number; busyMs: number }[] = [];
  readonly #evictions = new Map<string, number>();
  readonly #failures = new Map<string, number>();
  readonly #planChanges = { smaller: 0, larger: 0 };
  #listChanges: { done: number; refused: number } | undefined;
  readonly #predictions = new PredictionCounter();
  readonly #slos = new SloCounter();
  /** Between disk and GPUs. */
  readonly #hostMemory = { disk_reads: 0, disk_read_bytes: 0, evictions: 0 };

  /**
   * @param fromMs events before this are warm-up; Infinity: until `measureFrom` is called. @param onMeasured gets the
   * outcomes that the report counts
   */
  constructor({ fromMs = 0, onMeasured }: BuilderOptions = {}) {
    this.#fromMs = fromMs;
    this.#onMeasured = onMeasured;
  }

  get measuredFromMs(): number {
    return this.#fromMs;
  }

  /** The warm-up ends at this instant. Invocations that arrived later must not have ended yet. */
  measureFrom(fromMs: number): void {
    this.#fromMs = fromMs;
  }

  /**
   * The same invocations, for a replay whose first `warmup` ones are warm-up.
   *
   * @param speed by which the replay is faster than its trace
   */
  measured(invocations: Iterable<TraceInvocation>, warmup: number, speed = 1): Iterable<TraceInvocation> {
    return warmup === 0 ? invocations : this.#measuredFrom(invocations, warmup, speed);
  }

  *#measuredFrom(invocations: Iterable<TraceInvocation>, warmup: number, speed: number): Generator<TraceInvocation> {
    this.measureFrom(Infinity);
    let arrived = 0;
    for (const invocation of invocations) {
      // Before the scheduler gets it: what it does for the first measured invocation counts.
      if (arrived === warmup) this.measureFrom(invocation.arrivalMs / speed);
      arrived++;
      yield invocation;
    }
  }

  outcome(outcome: Outcome): void {
    const { arrivalMs, endMs, placement, functionIndex, queueMs } = outcome;
    if (arrivalMs < this.#fromMs) {
      this.#warmupRequests++;
      this.#calledInWarmup.add(functionIndex);
      return;
    }
    this.#onMeasured?.(outcome);
    this.#whole.count(outcome);
    this.#predictions.count(outcome);
    this.#slos.count(outcome);
    if (arrivalMs < this.#firstArrivalMs) this.#firstArrivalMs = arrivalMs;
    if (arrivalMs > this.#lastArrivalMs) this.#lastArrivalMs = arrivalMs;
    if (endMs > this.#endMs) this.#endMs = endMs;
    this.#function(functionIndex).count(outcome);
    this.#series.at(arrivalMs - this.#fromMs).tally.count(outcome);
    if (placement.kind === 'gpu') {
      this.#queueMs.record(queueMs);
      const gpu = this.#gpu(placement.gpu);
      gpu.requests++;
      if (placement.residency === 'cold') gpu.coldStarts++;
    } else if (placement.kind === 'cpu' || placement.kind === 'worker') {
      this.#queueMs.record(queueMs);
    } else if (placement.kind === 'failed') {
      const known = this.#failures.has(placement.reason) || this.#failures.size < reasonsMax;
      count(this.#failures, known ? placement.reason : 'other reasons');
    }
  }

  eviction({ atMs, from, functionIndex, cause }: EvictionRecord): void {
    if (atMs < this.#fromMs) return;
    if (from === 'host') this.#hostMemory.evictions++;
    this.#whole.evictions++;
    this.#function(functionIndex).evictions++;
    this.#series.at(atMs - this.#fromMs).tally.evictions++;
    if (typeof from === 'number') this.#gpu(from).evictions++;
    count(this.#evictions, cause);
  }

  stage({ atMs, bytes }: StageRecord): void {
    if (atMs < this.#fromMs) return;
    this.#hostMemory.disk_reads++;
    this.#hostMemory.disk_read_bytes += bytes;
  }

  planChange({ atMs, direction }: PlanChangeRecord): void {
    if (atMs >= this.#fromMs) this.#planChanges[direction]++;
  }

  listChange({ atMs, outcome }: ListChangeRecord): void {
    if (atMs < this.#fromMs) return;
    this.#listChanges ??= { done: 0, refused: 0 };
    this.#listChanges[outcome]++;
  }

  busy(gpu: Given<GpuId>, fromMs: number, toMs: number): void {
    const startMs = Math.max(fromMs, this.#fromMs);
    if (!(startMs < toMs)) return;
    this.#gpu(gpu).busyMs += toMs - startMs;
    this.#series.busy(gpu, startMs - this.#fromMs, toMs - this.#fromMs);
  }

  #function(index: number): TallyCounter {
    // Without gaps: V8 turns an array with many gaps into a map.
    while (this.#functions.length <= index) this.#functions.push(undefined);
    return (this.#functions[index] ??= new TallyCounter(
      index < preciseFunctions ? functionSketch : smallFunctionSketch,
    ));
  }

  #gpu(index: number): { requests: number; coldStarts: number; evictions: number; busyMs: number } {
    while (this.#gpus.length <= index) this.#gpus.push({ requests: 0, coldStarts: 0, evictions: 0, busyMs: 0 });
    return this.#gpus[index]!;
  }

  finish(context: ReportContext): Report {
    const { kind, machine, seed, settings } = context;
    if ((context.gpuCount ?? 0) > 0) this.#gpu(context.gpuCount! - 1);
    const startMs = this.#fromMs;
    const spanMs = Math.max(0, this.#endMs - startMs);
    const offeredMs = Math.max(0, this.#lastArrivalMs - startMs);
    const { widthMs, rows } = this.#series;
    const perMinute = widthMs < minuteMs ? joined(rows, minuteMs / widthMs) : rows;
    const functions = this.#functionRows(context);
    const sketches = [this.#whole, ...this.#functions, ...rows.map(({ tally }) => tally)];
    const warnings = [...(context.warnings ?? []), ...this.#neverCalled(context)];
    const report: Judged = {
      format: 'turntable-report',
      version: 1,
      ...(kind === 'simulated' ? { simulated: true } : { measured: true }),
      ...(warnings.length > 0 && { warnings }),
      machine,
      seed,
      settings,
      ...this.#whole.result(),
      warmup_requests: this.#warmupRequests,
      duration_s: rounded(spanMs / 1000),
      requests_per_s: perSecond(this.#whole.requests, offeredMs),
      goodput_per_s: perSecond(this.#whole.inSlo, spanMs),
      queue_mean_ms: finite(this.#queueMs.mean),
      queue_p99_ms: finite(this.#queueMs.quantile(0.99)),
      latency_cdf: cdfOf(this.#whole.latencyMs),
      evictions_by_cause: sortedRecord(this.#evictions),
      failures_by_reason: sortedRecord(this.#failures),
      plan_changes: { ...this.#planChanges },
      ...(this.#listChanges && { list_changes: { ...this.#listChanges } }),
      predictions: this.#predictions.rows(),
      slos: this.#slos.rows(),
      ...(context.hostMemory && { host_memory: this.#hostMemoryRow(context.hostMemory) }),
      ...(context.fleet && { fleet: context.fleet }),
      percentile_error: rounded(Math.max(...sketches.map((each) => each?.latencyMs.error ?? 0))),
      gpus: this.#gpus.map((gpu, index): GpuRow => {
        const utilisation = spanMs === 0 ? 0 : rounded(Math.min(1, gpu.busyMs / spanMs));
        const { requests, coldStarts } = gpu;
        const evictions = kind === 'measured' ? null : gpu.evictions;
        return { gpu: index, requests, cold_starts: coldStarts, evictions, utilisation };
      }),
      models: this.#modelRows(context),
      minutes_per_row: Math.max(1, widthMs / minuteMs),
      per_minute: this.#intervalRows(perMinute, Math.max(minuteMs, widthMs), spanMs),
      seconds_per_step: widthMs < minuteMs ? widthMs / 1000 : null,
      timeline: widthMs < minuteMs ? this.#intervalRows(rows, widthMs, spanMs) : [],
      functions,
    };
    return { ...report, verdict: verdictOf(report, this.#hopeless(context)) };
  }

  /** Functions that no call of was answered in time, with what their calls take at best. */
  #hopeless({ functionNames, leastTimesOf }: ReportContext): HopelessFunction[] {
    return this.#functions.flatMap((tally, index) => {
      if (tally === undefined || tally.inSlo > 0) return [];
      const times = leastTimesOf?.(index);
      return times === undefined ? [] : [{ ...times, name: functionNames[index] ?? '', requests: tally.requests }];
    });
  }

  /** A load on fewer functions than there are says nothing about the others. */
  #neverCalled({ functionNames, modelOf }: ReportContext): string[] {
    const isCalled = (index: number): boolean =>
      this.#functions[index] !== undefined || this.#calledInWarmup.has(index);
    const left = [...functionNames.keys()].filter((index) => !isCalled(index));
    if (left.length === 0) return [];
    const models = new Map<string, number>();
    for (const index of left) count(models, modelOf?.(index) ?? functionNames[index]!);
    const named = Array.from(models, ([name, number]) => (number === 1 ? name : `${name} x ${number}`));
    const more = named.length > namedMax ? `, and ${named.length - namedMax} more` : '';
    return [
      `${left.length.toLocaleString('en-US')} of ${functionNames.length.toLocaleString('en-US')} functions are never ` +
        `called: ${named.slice(0, namedMax).join(', ')}${more}.`,
    ];
  }

  #hostMemoryRow(memory: HostMemory): HostMemoryRow {
    const { capacityBytes, functionsBytes, diskCapacityBytes = Infinity, filledFunctions } = memory;
    return {
      capacity_bytes: capacityBytes,
      functions_bytes: functionsBytes,
      disk_capacity_bytes: finite(diskCapacityBytes),
      exceeded: functionsBytes > capacityBytes,
      ...this.#hostMemory,
      ...given({ filled_functions: filledFunctions }),
    };
  }

  #intervalRows(rows: readonly Interval[], widthMs: number, spanMs: number): IntervalRow[] {
    return rows.map(({ tally, busyMs }, index) => {
      // The last interval ends with the replay, its load with the last arrival.
      const lengthMs = Math.max(1, Math.min(widthMs, spanMs - index * widthMs));
      const offeredMs = Math.max(1, Math.min(widthMs, this.#lastArrivalMs - this.#fromMs - index * widthMs));
      return {
        start_s: rounded((index * widthMs) / 1000),
        requests_per_s: perSecond(tally.requests, offeredMs),
        utilisation: this.#gpus.map((_, gpu) => rounded(Math.min(1, (busyMs[gpu] ?? 0) / lengthMs))),
        ...tally.result(),
      };
    });
  }

  #functionRows({ functionNames }: ReportContext): FunctionRow[] {
    const rows: FunctionRow[] = [];
    for (const [index, tally] of this.#functions.entries()) {
      if (tally !== undefined) rows.push({ function: functionNames[index] ?? `#${index}`, ...tally.result() });
    }
    return rows;
  }

  /** None if every function is its own model: the rows of the functions say the same. */
  #modelRows({ modelOf }: ReportContext): ModelRow[] {
    if (modelOf === undefined) return [];
    const models = new Map<string, { readonly tally: TallyCounter; functions: number }>();
    for (const [index, tally] of this.#functions.entries()) {
      if (tally === undefined) continue;
      const entry = getOrMake(models, modelOf(index), () => ({ tally: new TallyCounter(wholeSketch), functions: 0 }));
      entry.tally.merge(tally);
      entry.functions++;
    }
    return Array.from(models, ([model, { tally, functions }]) => ({ model, functions, ...tally.result() }));
  }
}

/** Denser where the tail is: steps of 2%, of 1% from 90% on, and of 0.1% from 99% on. */
const cdfShares = [
  ...Array.from({ length: 45 }, (_, index) => index / 50),
  ...Array.from({ length: 9 }, (_, index) => (90 + index) / 100),
  ...Array.from({ length: 11 }, (_, index) => (990 + index) / 1000),
];

function cdfOf(latencyMs: Sketch): (readonly [share: number, ms: number])[] {
  return latencyMs.count === 0 ? [] : cdfShares.map((share) => [share, rounded(latencyMs.quantile(share))]);
}

function perSecond(count: number, ms: number): number {
  return ms === 0 ? 0 : rounded(count / (ms / 1000));
}
