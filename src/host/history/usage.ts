/** How busy the machine was in the last hour: a sample every five seconds. */
import type { CpuInfo } from 'node:os';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { readCoreTimes, readQuotaPeriods, type QuotaPeriods } from '../../hardware/index.ts';
import { treeCpuMs } from '../../process/index.ts';
import type { MachineBusy } from '../calls/open-calls.ts';

const sampleEveryMs = 5000;
const samplesKept = 720;
const loopResolutionMs = 10;
/** Cores are looked at for a late call at most this often: the kernel counts their time in hundredths of a second. */
const lookEveryMs = 200;
/** Cores that are busier than this are full. */
export const fullShare = 0.85;
/** A control group that has used up its quota in more of its periods has too few cores. */
export const heldBackShare = 0.2;

/** Bytes copied over a GPU's link so far. */
export interface LinkBytes {
  readonly gpu: number;
  readonly fromHost: number;
  readonly toHost: number;
}

/** Shares from 0 to 1, and numbers of calls. */
export interface UsageSample {
  readonly atMs: number;
  /** Of all cores of the machine, whichever process uses them. */
  readonly cores: number;
  /** The part of them that this host and its processes use; null where the system does not tell. */
  readonly ownCores: number | null;
  /** Of the periods of the control group's quota of cores, in how many it was used up; 0 without a quota. */
  readonly heldBack: number;
  /** The longest that the event loop was late since the sample before, in milliseconds. */
  readonly loopDelayMs: number;
  /** What sessions held, of `cpu.memory`. */
  readonly memoryUsedBytes: number;
  readonly waiting: number;
  readonly inFlight: number;
  /** Sent to workers and not yet answered. */
  readonly atWorkers: number;
  /** Share of each GPU's time in which it executes or waits for weights. */
  readonly gpus: readonly number[];
  /** Of each GPU's link to the host, a second since the sample before; empty in the first sample. */
  readonly links: readonly LinkBytes[];
}

export interface UsageNow extends Omit<
  UsageSample,
  'atMs' | 'cores' | 'ownCores' | 'heldBack' | 'loopDelayMs' | 'links'
> {
  readonly linkBytes: readonly LinkBytes[];
}

/** How late the event loop was, in milliseconds. */
export interface LoopDelay {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

const onTime: LoopDelay = { p50: 0, p99: 0, max: 0 };

const worseOf = (one: LoopDelay, other: LoopDelay): LoopDelay => ({
  p50: Math.max(one.p50, other.p50),
  p99: Math.max(one.p99, other.p99),
  max: Math.max(one.max, other.max),
});

/** The only sampler of the event loop. The samples and the scrapes of /metrics read it, each since its last time. */
class LoopWatch {
  readonly #delay = monitorEventLoopDelay({ resolution: loopResolutionMs });
  #sinceSample = onTime;
  #sinceScrape = onTime;

  constructor() {
    this.#delay.enable();
  }

  sampled(): LoopDelay {
    this.#read();
    const found = this.#sinceSample;
    this.#sinceSample = onTime;
    return found;
  }

  /** Of several samples the worst. */
  scraped(): LoopDelay {
    this.#read();
    const found = this.#sinceScrape;
    this.#sinceScrape = onTime;
    return found;
  }

  longestMs(): number {
    this.#read();
    return this.#sinceSample.max;
  }

  close(): void {
    this.#delay.disable();
  }

  #read(): void {
    if (this.#delay.count === 0) return;
    const { max } = this.#delay;
    const found = { p50: late(this.#delay.percentile(50)), p99: late(this.#delay.percentile(99)), max: late(max) };
    this.#delay.reset();
    this.#sinceSample = worseOf(this.#sinceSample, found);
    this.#sinceScrape = worseOf(this.#sinceScrape, found);
  }
}

/** Node records the time between two ticks of its timer, so without any delay it reports the resolution. */
const late = (betweenNs: number): number => Math.max(0, betweenNs / 1e6 - loopResolutionMs);

export class Usage {
  readonly #samples: UsageSample[] = [];
  readonly #now: () => UsageNow;
  readonly #readCores: () => readonly CpuInfo[];
  readonly #timer: NodeJS.Timeout;
  readonly #readOwnMs: () => number | undefined;
  readonly #readPeriods: () => QuotaPeriods | undefined;
  #periodsBefore: QuotaPeriods | undefined;
  readonly #loop = new LoopWatch();
  #before: readonly CpuInfo[];
  /** Cores since the last look for a late call. */
  #looked: { readonly atMs: number; readonly cores: readonly CpuInfo[]; readonly isFull: boolean };
  #ownBeforeMs: number | undefined;
  #linksBefore: { readonly atMs: number; readonly bytes: readonly LinkBytes[] } | undefined;

  /** @param refresh updates what `now` returns before each sample */
  constructor(
    now: () => UsageNow,
    refresh?: () => Promise<void>,
    readCores: () => readonly CpuInfo[] = readCoreTimes,
    readOwnMs: () => number | undefined = treeCpuMs,
    readPeriods: () => QuotaPeriods | undefined = readQuotaPeriods,
  ) {
    this.#now = now;
    this.#readCores = readCores;
    this.#readOwnMs = readOwnMs;
    this.#readPeriods = readPeriods;
    this.#periodsBefore = readPeriods();
    this.#before = readCores();
    this.#looked = { atMs: Date.now(), cores: this.#before, isFull: false };
    this.#ownBeforeMs = readOwnMs();
    const take = (): void => this.sample(Date.now());
    this.#timer = setInterval(() => (refresh === undefined ? take() : void refresh().then(take)), sampleEveryMs);
    this.#timer.unref();
  }

  /** Samples, the newest last. */
  get samples(): readonly UsageSample[] {
    return this.#samples;
  }

  /** The newest so many; the first one is taken when it is asked for. */
  recent(count: number): readonly UsageSample[] {
    if (this.#samples.length === 0) this.sample(Date.now());
    return this.#samples.slice(-count);
  }

  /** How late the event loop was since this was last asked. */
  scrapeLoopDelay(): LoopDelay {
    return this.#loop.scraped();
  }

  /**
   * By the samples of the last milliseconds, or the latest, and how busy cores and event loop are since then: a neighbour
   * that has just begun is in no sample yet.
   */
  busiest(lastMs: number, nowMs = Date.now()): MachineBusy {
    const { samples } = this;
    let isFull = this.#isFullAt(nowMs);
    let loopDelayMs = this.#loop.longestMs();
    for (let index = samples.length - 1; index >= 0; index--) {
      const sample = samples[index]!;
      if (index < samples.length - 1 && sample.atMs < nowMs - lastMs) break;
      isFull ||= sample.cores >= fullShare || sample.heldBack >= heldBackShare;
      loopDelayMs = Math.max(loopDelayMs, sample.loopDelayMs);
    }
    return { isFull, loopDelayMs };
  }

  #isFullAt(atMs: number): boolean {
    if (atMs - this.#looked.atMs >= lookEveryMs) {
      const cores = this.#readCores();
      this.#looked = { atMs, cores, isFull: busyShare(this.#looked.cores, cores) >= fullShare };
    }
    return this.#looked.isFull;
  }

  sample(atMs: number): void {
    const cores = this.#readCores();
    const share = busyShare(this.#before, cores);
    this.#looked = { atMs, cores, isFull: share >= fullShare };
    const ownMs = this.#readOwnMs();
    const ownCores = ownShare(this.#ownBeforeMs, ownMs, this.#before, cores);
    this.#ownBeforeMs = ownMs;
    const periods = this.#readPeriods();
    const heldBack = stoppedShare(this.#periodsBefore, periods);
    this.#periodsBefore = periods;
    const loopDelayMs = this.#loop.sampled().max;
    const { linkBytes, ...now } = this.#now();
    const links = linkRates(this.#linksBefore, atMs, linkBytes);
    // The clock was set back.
    while ((this.#samples.at(-1)?.atMs ?? atMs) > atMs) this.#samples.pop();
    this.#samples.push({ atMs, cores: share, ownCores, heldBack, loopDelayMs, ...now, links });
    this.#before = cores;
    this.#linksBefore = { atMs, bytes: linkBytes };
    if (this.#samples.length > samplesKept) this.#samples.shift();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#loop.close();
  }
}

/** A restarted GPU process counts from zero. */
function linkRates(
  before: { readonly atMs: number; readonly bytes: readonly LinkBytes[] } | undefined,
  atMs: number,
  bytes: readonly LinkBytes[],
): LinkBytes[] {
  if (before === undefined || atMs <= before.atMs) return [];
  const perSecond = (earlier: number, later: number): number =>
    ((later < earlier ? later : later - earlier) * 1000) / (atMs - before.atMs);
  return bytes.flatMap(({ gpu, fromHost, toHost }) => {
    const earlier = before.bytes.find((each) => each.gpu === gpu);
    if (earlier === undefined) return [];
    return [{ gpu, fromHost: perSecond(earlier.fromHost, fromHost), toHost: perSecond(earlier.toHost, toHost) }];
  });
}

function stoppedShare(before: QuotaPeriods | undefined, now: QuotaPeriods | undefined): number {
  const passed = (now?.all ?? 0) - (before?.all ?? 0);
  return passed <= 0 ? 0 : Math.min(1, Math.max(0, ((now?.stopped ?? 0) - (before?.stopped ?? 0)) / passed));
}

const allTimes = ({ user, nice, sys, idle, irq }: CpuInfo['times']): number => user + nice + sys + idle + irq;

const sum = (list: readonly CpuInfo[], of: (times: CpuInfo['times']) => number): number =>
  list.reduce((total, { times }) => total + of(times), 0);

/** The share of the cores' time between two readings that one process and its children have used. */
function ownShare(
  beforeMs: number | undefined,
  nowMs: number | undefined,
  before: readonly CpuInfo[],
  now: readonly CpuInfo[],
): number | null {
  const passed = sum(now, allTimes) - sum(before, allTimes);
  if (beforeMs === undefined || nowMs === undefined || passed <= 0) return null;
  return Math.min(1, Math.max(0, (nowMs - beforeMs) / passed));
}

/** The share of the cores' time between two readings that was not idle. */
export function busyShare(before: readonly CpuInfo[], now: readonly CpuInfo[]): number {
  const passed = sum(now, allTimes) - sum(before, allTimes);
  const idle = sum(now, (times) => times.idle) - sum(before, (times) => times.idle);
  return passed <= 0 ? 0 : Math.min(1, Math.max(0, 1 - idle / passed));
}
