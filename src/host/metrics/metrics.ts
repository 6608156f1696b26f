/**
 * Prometheus metrics. {@link Statistics} and the pools keep the numbers; they become series only at a scrape, which is
 * never a use of a function.
 */
import { collectDefaultMetrics, Registry as PromRegistry } from 'prom-client';
import type { PoolState } from '../../cpu/index.ts';
import type { GpuProcessState } from '../../gpu/index.ts';
import { Exposition } from './exposition.ts';
import { addGpuMetrics } from './gpu.ts';
import { addGatewayMetrics, addMachineMetrics, addModelMeshMetrics } from './inherited.ts';
import { addInvocationMetrics } from './invocations.ts';
import { addQueueMetrics } from './queue.ts';
import { pooled, type CacheCounts, type Metered, type MetricsOptions } from './samples.ts';
import { addTritonMetrics } from './triton.ts';
import { addFleetMetrics } from './fleet.ts';
import type { FunctionVersion } from '../types.ts';

export type Metrics = ReturnType<typeof createMetrics>;

export function createMetrics(options: MetricsOptions) {
  const { connections, memory, dependencies, usage, registry, pools, statistics, fleet, queueing, gpus } = options;
  const prom = new PromRegistry();
  collectDefaultMetrics({ register: prom });

  const exposition = new Exposition();
  let scraped: readonly [FunctionVersion, PoolState][] | undefined;
  const metered: Metered = { ...options, exposition, inPools: () => (scraped ??= pooled(registry, pools)) };
  addTritonMetrics(metered);
  addModelMeshMetrics(metered);
  addGatewayMetrics(metered);
  addMachineMetrics(exposition);
  addInvocationMetrics(metered);
  if (options.store?.cache !== undefined) addStoreMetrics(exposition, options.store.cache);
  if (fleet !== undefined) addFleetMetrics(exposition, fleet);
  if (queueing !== undefined) addQueueMetrics(exposition, queueing);
  let gpuState: GpuProcessState | undefined;
  if (gpus !== undefined) addGpuMetrics(exposition, gpus, () => gpuState);
  const { counter, gauge } = exposition;
  gauge('turntable_requests_in_flight', 'Requests that count against the limit now', () => statistics.requestsInFlight);
  gauge('turntable_connections_open', 'Open connections, by door', (set) => {
    for (const [door, count] of Object.entries(connections.open)) set({ door }, count);
  });
  counter('turntable_connections_refused_total', 'Connections refused, by reason', (add) => {
    for (const [reason, count] of Object.entries(connections.refusals)) add({ reason }, count);
  });
  counter('turntable_errors_total', 'Failures that clients were told, by code', (add) => {
    for (const [code, count] of statistics.errors) add({ code }, count);
  });
  gauge('turntable_dependency_up', 'Whether what this host depends on is as it needs it', (set) => {
    const troubled = new Set(dependencies.troubled().map(({ dependency }) => dependency));
    for (const dependency of dependencies.names) set({ dependency }, troubled.has(dependency) ? 0 : 1);
  });
  gauge('turntable_disk_free_bytes', 'What this host may still write on the disk of its data folder', (set) => {
    if (dependencies.disk !== undefined) set({}, dependencies.disk.freeBytes);
  });
  gauge(
    'turntable_disk_used_bytes',
    'What the data folder has of models, by part; bytes of several versions once',
    (set) => {
      const parts = options.store?.diskUse?.latest().parts;
      for (const [part, bytes] of Object.entries(parts ?? {})) set({ part }, bytes);
    },
  );
  gauge('turntable_memory_budget_bytes', 'How memory is divided, by what it is for', (set) => {
    for (const [part, bytes] of Object.entries(memory.parts)) if (bytes > 0) set({ part }, bytes);
  });
  gauge('turntable_memory_used_bytes', 'What is used of each part of the memory', (set) => {
    for (const [part, bytes] of Object.entries(memory.used().parts)) set({ part }, bytes);
  });
  counter('turntable_oom_kills_total', 'Processes that the kernel ended for lack of memory', (add) => {
    for (const [part, count] of memory.killCounts) add({ part }, count);
  });
  gauge('turntable_event_loop_delay_seconds', "Delay of the host's event loop since the last scrape", (set) => {
    for (const [statistic, ms] of Object.entries(usage.scrapeLoopDelay())) set({ statistic }, ms / 1000);
  });
  return {
    contentType: prom.contentType,
    /** The exposition text. */
    text: async () => {
      scraped = undefined;
      gpuState = await gpus?.freshState();
      // The process's own series are few, however many functions there are.
      return `${await exposition.text()}${await prom.metrics()}`;
    },
    close: () => prom.clear(),
  };
}

/** Of a host whose functions live in a store on another machine. */
function addStoreMetrics({ gauge, counter }: Exposition, cache: CacheCounts): void {
  gauge('turntable_store_cache_bytes', 'Published functions on the disk of this host', () => cache.bytes);
  counter('turntable_store_dropped_total', 'Versions whose files were dropped here for room', () => cache.dropped);
}
