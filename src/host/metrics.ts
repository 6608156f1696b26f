/**
 * Prometheus metrics. {@link Statistics} and the pools keep the numbers; they become series only at a scrape, which is
 * never a use of a function.
 */
import { monitorEventLoopDelay, type IntervalHistogram } from 'node:perf_hooks';
import { collectDefaultMetrics, Registry as PromRegistry } from 'prom-client';
import type { CpuPools, PoolState } from '../cpu/index.ts';
import type { GpuProcessState } from '../gpu/index.ts';
import { Exposition } from './exposition.ts';
import { addGpuMetrics } from './metrics-gpu.ts';
import { addGatewayMetrics, addMachineMetrics, addModelMeshMetrics } from './metrics-inherited.ts';
import { addInvocationMetrics, type InvocationMetricsSource } from './metrics-invocations.ts';
import { addQueueMetrics } from './metrics-queue.ts';
import { pooled } from './metrics-samples.ts';
import { addTritonMetrics } from './metrics-triton.ts';
import type { FleetMember } from './fleet-member/index.ts';
import { addFleetMetrics } from './metrics-fleet.ts';
import type { Queueing } from './queueing/index.ts';
import type { FunctionVersion, Registry } from './types.ts';

export interface MetricsOptions extends InvocationMetricsSource {
  readonly registry: Registry;
  readonly pools: CpuPools;
  /** Bytes of memory for models on this machine. */
  readonly memoryBytes: number;
  /** Where work goes besides this host; absent: nowhere. */
  readonly fleet?: FleetMember | undefined;
  readonly queueing?: Queueing | undefined;
}

export type Metrics = ReturnType<typeof createMetrics>;

export function createMetrics(options: MetricsOptions) {
  const { registry, pools, statistics, memoryBytes, fleet, queueing, invoker, gpus } = options;
  const prom = new PromRegistry();
  collectDefaultMetrics({ register: prom });

  const exposition = new Exposition();
  let scraped: readonly [FunctionVersion, PoolState][] | undefined;
  const invocations = { ...options, gpus, exposition, inPools: () => (scraped ??= pooled(registry, pools)) };
  addTritonMetrics(invocations);
  addModelMeshMetrics({ ...invocations, memoryBytes });
  addGatewayMetrics(invocations);
  addMachineMetrics(exposition);
  addInvocationMetrics(invocations);
  if (fleet !== undefined) addFleetMetrics(exposition, fleet);
  if (queueing !== undefined) addQueueMetrics(exposition, queueing, invoker);
  let gpuState: GpuProcessState | undefined;
  if (gpus !== undefined) addGpuMetrics(exposition, gpus, () => gpuState);
  const { counter, gauge } = exposition;
  gauge('turntable_requests_in_flight', 'Requests that count against the limit now', () => statistics.requestsInFlight);
  counter('turntable_errors_total', 'Failures that clients were told, by code', (add) => {
    for (const [code, count] of statistics.errors) add({ code }, count);
  });
  const loopDelay = addLoopDelay(exposition);
  return {
    contentType: prom.contentType,
    /** The exposition text. */
    text: async () => {
      scraped = undefined;
      gpuState = await gpus?.freshState();
      // The process's own series are few, however many functions there are.
      return `${await exposition.text()}${await prom.metrics()}`;
    },
    /** Stops measuring the event loop's delay. */
    close: () => {
      loopDelay.disable();
      prom.clear();
    },
  };
}

function addLoopDelay({ gauge }: Exposition): IntervalHistogram {
  // Own sampler: the default metrics reset theirs on each scrape, and sample every 10 ms.
  const resolutionMs = 5;
  const loopDelay = monitorEventLoopDelay({ resolution: resolutionMs });
  loopDelay.enable();
  gauge('turntable_event_loop_delay_seconds', "Delay of the host's event loop since the last scrape", (set) => {
    const read = { p50: loopDelay.percentile(50), p99: loopDelay.percentile(99), max: loopDelay.max };
    for (const [statistic, betweenNs] of Object.entries(read)) {
      // Node records the time between two ticks of its timer, so without any delay it reports the resolution.
      set({ statistic }, loopDelay.count === 0 ? 0 : Math.max(0, betweenNs / 1e9 - resolutionMs / 1000));
    }
    loopDelay.reset();
  });
  return loopDelay;
}
