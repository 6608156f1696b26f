/** How busy the machine was: samples of the last hour, each of the five seconds before it. */
import { cpus, type CpuInfo } from 'node:os';

const sampleEveryMs = 5000;
const samplesKept = 720;

/** Shares from 0 to 1, and numbers of calls. */
export interface UsageSample {
  readonly atMs: number;
  /** Of all cores of the machine, by anybody. */
  readonly cores: number;
  readonly waiting: number;
  readonly inFlight: number;
  /** Handed to workers and not answered. */
  readonly atWorkers: number;
  /** Of each GPU's time, executing or waiting for weights. */
  readonly gpus: readonly number[];
}

export type UsageNow = Omit<UsageSample, 'atMs' | 'cores'>;

export class Usage {
  readonly #samples: UsageSample[] = [];
  readonly #now: () => UsageNow;
  readonly #readCores: () => CpuInfo[];
  readonly #timer: NodeJS.Timeout;
  #before: CpuInfo[];

  constructor(now: () => UsageNow, readCores: () => CpuInfo[] = cpus) {
    this.#now = now;
    this.#readCores = readCores;
    this.#before = readCores();
    this.#timer = setInterval(() => this.sample(Date.now()), sampleEveryMs);
    this.#timer.unref();
  }

  /** The newest last. */
  get samples(): readonly UsageSample[] {
    return this.#samples;
  }

  sample(atMs: number): void {
    const cores = this.#readCores();
    this.#samples.push({ atMs, cores: busyShare(this.#before, cores), ...this.#now() });
    this.#before = cores;
    if (this.#samples.length > samplesKept) this.#samples.shift();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

const allTimes = ({ user, nice, sys, idle, irq }: CpuInfo['times']): number => user + nice + sys + idle + irq;

const sum = (list: readonly CpuInfo[], of: (times: CpuInfo['times']) => number): number =>
  list.reduce((total, { times }) => total + of(times), 0);

/** Of the time between two readings of all cores, the share that was not idle. */
export function busyShare(before: readonly CpuInfo[], now: readonly CpuInfo[]): number {
  const passed = sum(now, allTimes) - sum(before, allTimes);
  const idle = sum(now, (times) => times.idle) - sum(before, (times) => times.idle);
  return passed <= 0 ? 0 : Math.min(1, Math.max(0, 1 - idle / passed));
}
