/** `GET /api/machine`: cores, GPUs, queues and workers, now and over the last hour. */
import type { UsageNow } from '../history/index.ts';
import { waitingCount, type ViewSources } from './views.ts';
import { calledAs } from '../../tools/index.ts';

const queuesMax = 20;

type Busy = Pick<ViewSources, 'pools' | 'statistics' | 'workers' | 'gpus'>;

/** The values that {@link Usage} samples. */
export function usageNow({ pools, statistics, workers, gpus }: Busy): UsageNow {
  return {
    memoryUsedBytes: pools.resources().memoryUsedBytes,
    waiting: waitingCount(pools, gpus),
    inFlight: statistics.requestsInFlight,
    atWorkers: workers().reduce((sum, { inFlight }) => sum + inFlight, 0),
    gpus: gpus?.busyShares() ?? [],
    linkBytes: gpus?.linkBytes() ?? [],
  };
}

/** Shares are from 0 to 1. */
export type MachineAnswer = ReturnType<typeof machineAnswer>;

export function machineAnswer(sources: ViewSources, nowMs: number) {
  const { pools, usage, gpus, workers, redis } = sources;
  const states = pools.states();
  const instances = states.flatMap((state) => state.instances);
  const { waiting, inFlight, gpus: busyShares } = usageNow(sources);
  const { samples } = usage;
  const { cores, coresUnleased, memoryBytes, memoryUsedBytes } = pools.resources();
  const threadsBusy = instances.reduce((sum, { state, threads }) => sum + (state === 'idle' ? 0 : threads), 0);
  return {
    atMs: nowMs,
    cores: {
      /** Cores that the host may use for models. */
      total: cores,
      /** Threads of running instances, at most the cores. */
      busy: Math.min(cores, threadsBusy),
      /** Cores leased to instances of a single function. */
      leased: cores - coresUnleased,
      instances: instances.length,
      /** Instances of the CPU pools that run a call now. */
      busyInstances: instances.filter(({ state }) => state === 'busy').length,
    },
    memory: { usedBytes: memoryUsedBytes, totalBytes: memoryBytes },
    gpus: (gpus?.memory() ?? []).map(({ index, name, capacityBytes, residents }, at) => ({
      index,
      name,
      /** Share of the latest 10 seconds in which the GPU executed or waited for a load. */
      busyShare: busyShares[at] ?? 0,
      usedBytes: residents.reduce((sum, { bytes }) => sum + bytes, 0),
      capacityBytes,
      /** Copies between GPU and host in the last five seconds; `share` of the measured speed, of the busier direction. */
      link: linkOf(sources, index),
      /** Functions with weights on it, */
      functions: residents.length,
      /** and those of them with more weights on their way. */
      loading: residents.filter(({ state }) => state === 'loading').length,
    })),
    waiting,
    inFlight,
    /** Queues that are not empty, the longest first. */
    queues: states
      .filter(({ queueLength }) => queueLength > 0)
      .toSorted((one, other) => other.queueLength - one.queueLength)
      .slice(0, queuesMax)
      .map(({ key, queueLength }) => {
        const at = key.lastIndexOf('@');
        return { functionName: key.slice(0, at), version: key.slice(at + 1), waiting: queueLength };
      }),
    redis: redis()?.status ?? ('off' as const),
    /** The words for `turntable` on this host's machine. */
    calledAs: calledAs(),
    workers: workers().map(({ title, cores: workerCores, inFlight, backlogMs, draining, functions }) => ({
      name: title,
      cores: workerCores,
      outstanding: inFlight,
      backlogMs,
      draining,
      functions,
    })),
    /** The last hour, every five seconds. */
    usage: {
      atMs: samples.map(({ atMs }) => atMs),
      /** Busy share of all cores of the machine, whichever process uses them, */
      cores: samples.map((sample) => sample.cores),
      /** and the part of it that this host and its processes use. */
      ownCores: samples.map(({ ownCores }) => ownCores),
      waiting: samples.map((sample) => sample.waiting),
      inFlight: samples.map((sample) => sample.inFlight),
      atWorkers: samples.map(({ atWorkers }) => atWorkers),
      /** For each GPU. */
      gpus: busyShares.map((_, gpu) => samples.map((sample) => sample.gpus[gpu] ?? 0)),
      /** For each GPU's link: bytes a second, both directions. */
      links: busyShares.map((_, gpu) =>
        samples.map(({ links }) => {
          const rate = links.find((each) => each.gpu === gpu);
          return rate === undefined ? 0 : rate.fromHost + rate.toHost;
        }),
      ),
    },
  };
}

function linkOf({ usage, gpus }: ViewSources, gpu: number) {
  const rate = usage.samples.at(-1)?.links.find((each) => each.gpu === gpu);
  const speed = gpus?.linkSpeed(gpu);
  if (rate === undefined || speed === undefined) return null;
  // The link carries both directions at full speed at once.
  const share = Math.min(1, Math.max(rate.fromHost, rate.toHost) / speed);
  return { fromHostBytesPerSecond: rate.fromHost, toHostBytesPerSecond: rate.toHost, share };
}
