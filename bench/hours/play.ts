/** Replays one row under one system, and collects the figures for the table and the aims. */
import { cpuOffer } from '../../src/cli/replay/places.ts';
import { OfferCache, ReportBuilder, simulate, type Outcome, type ReplayObserver } from '../../src/replay/index.ts';
import type { Report } from '../../src/report/index.ts';
import type { ColdStartMode } from '../../src/plan/index.ts';
import { getOrMake, given } from '../../src/tools/index.ts';
import type { Hour, HoursRow } from './row.ts';
import type { HoursSystem } from './systems.ts';

export async function playHour(row: HoursRow, system: HoursSystem, seeds: readonly number[]): Promise<Hour> {
  const hours: Hour[] = [];
  for (const seed of seeds) hours.push(await playOnce(row, system, seed));
  const mean = (value: (hour: Hour) => number): number =>
    hours.reduce((sum, hour) => sum + value(hour), 0) / hours.length;
  const classes = Object.keys(hours[0]?.goodputByClass ?? {});
  return {
    goodput: mean(({ goodput }) => goodput),
    goodputBySeed: hours.flatMap(({ goodputBySeed }) => goodputBySeed),
    p50Ms: mean(({ p50Ms }) => p50Ms),
    p99Ms: mean(({ p99Ms }) => p99Ms),
    p99MsBySeed: hours.flatMap(({ p99MsBySeed }) => p99MsBySeed),
    shedShare: mean(({ shedShare }) => shedShare),
    offloadedShare: mean(({ offloadedShare }) => offloadedShare),
    coldShare: mean(({ coldShare }) => coldShare),
    evictionsPerRequest: mean(({ evictionsPerRequest }) => evictionsPerRequest),
    diskReadsPerRequest: mean(({ diskReadsPerRequest }) => diskReadsPerRequest),
    busiestToMean: mean(({ busiestToMean }) => busiestToMean),
    goodputByClass: Object.fromEntries(classes.map((name) => [name, mean((hour) => hour.goodputByClass[name] ?? 0)])),
    usPerRequest: mean(({ usPerRequest }) => usPerRequest),
  };
}

async function playOnce(row: HoursRow, { mode, policy }: HoursSystem, seed: number): Promise<Hour> {
  const { machine, admission, cpu, reserveBytes, warmup, classOf, host, gpuChanges } = row;
  const trace = row.trace(seed);
  const offers = bookOf(row, mode);
  const builder = new ReportBuilder();
  const classes = new ClassCounter();
  const observer: ReplayObserver = {
    outcome(outcome) {
      builder.outcome(outcome);
      if (classOf !== undefined && outcome.sequence >= warmup) classes.count(classOf(outcome.functionIndex), outcome);
    },
    eviction: (record) => builder.eviction(record),
    planChange: (record) => builder.planChange(record),
    stage: (record) => builder.stage(record),
    busy: (gpu, fromMs, toMs) => builder.busy(gpu, fromMs, toMs),
  };
  // Planned before the clock starts: otherwise the first row of a model would look slow.
  for (const model of new Set(trace.functionNames.map(modelOfName))) offers.offers(model);
  const startCpu = process.cpuUsage();
  const { functionNames } = trace;
  simulate(
    { functionNames, invocations: () => builder.measured(trace.invocations(), warmup) },
    {
      machine,
      policy: { ...policy, admission },
      sheetOf: (index, name) => {
        const model = modelOfName(name);
        const own = cpu && { cpu: cpuOffer(cpu, offers.weightBytes(model), machine) };
        return offers.sheet(model, { sloMs: row.sloMsOf(index), ...own });
      },
      ...given({ reserveBytes, host }),
    },
    observer,
    gpuChanges,
  );
  const { user, system } = process.cpuUsage(startCpu);
  const report = builder.finish({
    kind: 'simulated',
    machine: machine.name,
    seed,
    settings: {},
    functionNames,
    gpuCount: machine.gpus.length,
    ...(host && { hostMemory: { capacityBytes: host.capacityBytes, functionsBytes: Infinity } }),
  });
  const requests = report.requests + report.warmup_requests;
  return { ...summed(report), goodputByClass: classes.goodput(), usPerRequest: (user + system) / requests };
}

function summed(report: Report): Omit<Hour, 'goodputByClass' | 'usPerRequest'> {
  const { requests, gpus } = report;
  const onGpus = gpus.reduce((sum, gpu) => sum + gpu.requests, 0);
  const busiest = Math.max(0, ...gpus.map((gpu) => gpu.requests));
  return {
    goodput: report.goodput ?? 0,
    goodputBySeed: [report.goodput ?? 0],
    p50Ms: report.p50_ms ?? Infinity,
    p99Ms: report.p99_ms ?? Infinity,
    p99MsBySeed: [report.p99_ms ?? Infinity],
    shedShare: report.shed / requests,
    offloadedShare: report.offloaded / requests,
    coldShare: report.cold_start_rate ?? 0,
    evictionsPerRequest: report.evictions / requests,
    diskReadsPerRequest: (report.host_memory?.disk_reads ?? 0) / requests,
    busiestToMean: onGpus === 0 ? 0 : busiest / (onGpus / gpus.length),
  };
}

class ClassCounter {
  readonly #counts = new Map<string, { requests: number; inSlo: number }>();

  count(name: string, { placement, endMs, arrivalMs, sloMs }: Outcome): void {
    let counts = this.#counts.get(name);
    if (counts === undefined) this.#counts.set(name, (counts = { requests: 0, inSlo: 0 }));
    counts.requests++;
    const isAnswered = placement.kind === 'gpu' || placement.kind === 'cpu';
    if (isAnswered && endMs - arrivalMs <= sloMs) counts.inSlo++;
  }

  goodput(): Record<string, number> {
    const byName = [...this.#counts].sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }));
    return Object.fromEntries(byName.map(([name, { requests, inSlo }]) => [name, inSlo / requests]));
  }
}

const modelOfName = (name: string): string => name.slice(0, name.lastIndexOf('/'));

const books = new Map<string, OfferCache>();

function bookOf({ machine, profiles, weightBits, coding, sharedShare }: HoursRow, mode: ColdStartMode): OfferCache {
  const key = `${machine.name} ${mode} ${weightBits ?? ''} ${coding ?? ''} ${sharedShare ?? ''} ${profiles === undefined ? '' : [...profiles.keys()].join()}`;
  return getOrMake(
    books,
    key,
    () => new OfferCache(machine, mode, given({ profiles, weightBits, coding, sharedShare })),
  );
}
