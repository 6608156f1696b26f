/**
 * What this host depends on and does not get: Redis, the store, its disk, workers, a certificate that is still good. The page's
 * head, `turntable top`, `/api/trouble` and `/metrics` say the same of it.
 */
import { access, constants, statfs } from 'node:fs/promises';
import type { CertificateEnd } from './config/certificate-files.ts';
import { redisCost, type RedisHealth, type RedisTrouble } from '../queue/index.ts';
import { calledAs, formatBytes } from '../tools/index.ts';

/** In the order in which their troubles are told. */
export const dependencyNames = ['redis', 'store', 'disk', 'workers', 'certificate'] as const;
export type DependencyName = (typeof dependencyNames)[number];

/** `text`: what does not work now, and what to do about it, in a sentence or two. */
export type DependencyTrouble = { readonly text: string } & (
  | { readonly dependency: 'redis'; readonly state: RedisTrouble }
  | { readonly dependency: 'store'; readonly state: 'away' }
  | { readonly dependency: 'disk'; readonly state: 'full' | 'read-only' }
  | { readonly dependency: 'workers'; readonly state: 'gone' }
  | { readonly dependency: 'certificate'; readonly state: 'ending' | 'ended' }
);

/** The data folder's file system, as last looked at. */
export interface DiskState {
  readonly totalBytes: number;
  /** What this host may still write. */
  readonly freeBytes: number;
  readonly isWritable: boolean;
}

export interface DependenciesOptions {
  readonly dataDir: string;
  /** Absent: this host has no Redis. */
  readonly redis?: (() => RedisHealth) | undefined;
  /** Why a store on another machine does not answer. Absent: functions live on this disk alone. */
  readonly store?: (() => { readonly reason: string; readonly sinceMs: number } | undefined) | undefined;
  /** Workers that take calls, and calls that would go to them: those that wait here, or were sent and not answered. */
  readonly workers?: (() => { readonly taking: number; readonly waiting: number }) | undefined;
  /** When the certificates of this host end: that for its clients, those of its fleet. */
  readonly certificates?: readonly (() => readonly CertificateEnd[])[];
  /** Default: asks the system. */
  readonly readDisk?: (folder: string) => Promise<DiskState | undefined>;
}

const lookMs = 10_000;
/** Publications, checks and weights that are prepared need more than this, or than this share of a small disk. */
const freeBytesMin = 2 ** 30;
const freeShareMin = 0.02;
const dayMs = 86_400_000;
const certificateDaysMin = 14;

export class Dependencies {
  /** Those that this host has. */
  readonly names: readonly DependencyName[];
  readonly #options: DependenciesOptions;
  readonly #timer: NodeJS.Timeout;
  #disk: DiskState | undefined;
  #hadWorkers = false;

  constructor(options: DependenciesOptions) {
    this.#options = options;
    const { redis, store, workers, certificates = [] } = options;
    const sources: Readonly<Record<DependencyName, unknown>> = {
      redis,
      store,
      disk: options.dataDir,
      workers,
      certificate: certificates[0],
    };
    this.names = dependencyNames.filter((name) => sources[name] !== undefined);
    this.#timer = setInterval(() => void this.look(), lookMs);
    this.#timer.unref();
  }

  /** Undefined until it was looked at, and where the system does not tell. */
  get disk(): DiskState | undefined {
    return this.#disk;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async look(): Promise<void> {
    const { dataDir, readDisk = diskState } = this.#options;
    this.#disk = await readDisk(dataDir);
    this.#noteWorkers();
  }

  /** What is wrong now. */
  troubled(nowMs = Date.now()): DependencyTrouble[] {
    const troubles: Readonly<Record<DependencyName, DependencyTrouble | undefined>> = {
      redis: this.#redis(),
      store: this.#store(),
      disk: this.#diskTrouble(),
      workers: this.#workers(),
      certificate: this.#certificate(nowMs),
    };
    return dependencyNames.flatMap((name) => troubles[name] ?? []);
  }

  #redis(): DependencyTrouble | undefined {
    const health = this.#options.redis?.();
    if (health === undefined || health.status === 'up') return undefined;
    return { dependency: 'redis', state: health.status, text: redisCost(health) ?? '' };
  }

  #store(): DependencyTrouble | undefined {
    const trouble = this.#options.store?.();
    if (trouble === undefined) return undefined;
    const since = new Date(trouble.sinceMs).toISOString().slice(11, 19);
    const text =
      `The store of functions is away since ${since} UTC (${trouble.reason}): what is here goes on serving, and nothing ` +
      'can be published or changed.';
    return { dependency: 'store', state: 'away', text };
  }

  #diskTrouble(): DependencyTrouble | undefined {
    if (this.#disk === undefined) return undefined;
    const { totalBytes, freeBytes, isWritable } = this.#disk;
    const { dataDir } = this.#options;
    if (!isWritable) {
      const text = `The data folder ${dataDir} is not writable: nothing can be published or removed.`;
      return { dependency: 'disk', state: 'read-only', text };
    }
    if (freeBytes >= Math.min(freeBytesMin, freeShareMin * totalBytes)) return undefined;
    const text =
      `The disk of the data folder is full: ${formatBytes(freeBytes)} of ${formatBytes(totalBytes)} are free. ` +
      `Publications fail: make room in ${dataDir}.`;
    return { dependency: 'disk', state: 'full', text };
  }

  #noteWorkers(): { readonly taking: number; readonly waiting: number } {
    const now = this.#options.workers?.() ?? { taking: 0, waiting: 0 };
    if (now.taking > 0) this.#hadWorkers = true;
    return now;
  }

  /** A host that never had a worker misses none. */
  #workers(): DependencyTrouble | undefined {
    const { taking, waiting } = this.#noteWorkers();
    if (taking > 0 || waiting === 0 || !this.#hadWorkers) return undefined;
    const calls = waiting === 1 ? '1 call waits' : `${waiting} calls wait`;
    const text = `No worker answers, and ${calls}: start one (${calledAs()} worker --redis URL), or see why they ended.`;
    return { dependency: 'workers', state: 'gone', text };
  }

  /** Of the certificate that ends first. */
  #certificate(nowMs: number): DependencyTrouble | undefined {
    const ends = (this.#options.certificates ?? []).flatMap((endsNow) => endsNow());
    const [first] = ends.toSorted((one, other) => one.endMs - other.endMs);
    const ending = first && certificateTrouble(first, nowMs);
    return ending && { dependency: 'certificate', ...ending };
  }
}

/** What follows from a certificate that has ended, or ends within two weeks; undefined: it is good for longer. */
export function certificateTrouble({ option, endMs }: CertificateEnd, nowMs: number) {
  if (endMs - nowMs >= certificateDaysMin * dayMs) return undefined;
  const day = new Date(endMs).toISOString().slice(0, 10);
  const others = option.startsWith('fleet.') ? "the fleet's other hosts" : 'clients';
  const which =
    option === 'fleet.tlsCa' ? "fleet's CA" : option === 'fleet.tlsCert' ? 'fleet certificate' : 'TLS certificate';
  if (endMs <= nowMs) {
    return {
      state: 'ended',
      text: `The ${which} ended on ${day}: ${others} refuse this host; renew ${option}.`,
    } as const;
  }
  const days = Math.floor((endMs - nowMs) / dayMs);
  const left = days === 0 ? 'within a day' : days === 1 ? 'in 1 day' : `in ${days} days`;
  return { state: 'ending', text: `The ${which} ends ${left}, on ${day}: renew ${option}.` } as const;
}

async function diskState(folder: string): Promise<DiskState | undefined> {
  try {
    const { bsize, blocks, bavail } = await statfs(folder);
    const isWritable = await access(folder, constants.W_OK).then(
      () => true,
      () => false,
    );
    return { totalBytes: blocks * bsize, freeBytes: bavail * bsize, isWritable };
  } catch {
    return undefined;
  }
}
