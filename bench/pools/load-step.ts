/** A step of load from batches of 8 to batches of 64 and back, under the host's own controller (Packrat, Figure 6). */
import { groupsText } from '../../src/cpu/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { PoolsController } from '../../src/host/pools/pools-controller.ts';
import { Statistics } from '../../src/host/records/statistics.ts';
import type { FunctionVersion, Registry } from '../../src/host/types.ts';
import { median } from '../shared/statistics.ts';
import { BenchPool, type Subject } from './subject.ts';

export interface StepPoint {
  /** From the start of the run. */
  readonly atMs: number;
  readonly batch: number;
  readonly latencyMs: number;
  readonly configuration: string;
}

export interface StepOutcome {
  readonly points: readonly StepPoint[];
  readonly requests: number;
  readonly failed: number;
  /** For each phase the medians before the first change of configuration in it, and of its last third. */
  readonly phases: readonly {
    readonly batch: number;
    readonly beforeMs: number;
    readonly steadyMs: number;
    readonly from: string;
    readonly to: string;
  }[];
}

export async function loadStep(
  subject: Subject,
  options: {
    readonly cores: number;
    readonly batches: readonly number[];
    readonly phaseMs: number;
    readonly intervalMs: number;
    readonly progress: (text: string) => void;
  },
): Promise<StepOutcome> {
  const { cores, batches, phaseMs, intervalMs, progress } = options;
  const batchMax = Math.max(...batches);
  await using pool = new BenchPool(subject, cores, batchMax);
  const controller = new PoolsController({
    registry: registryOf(pool.key),
    pools: pool.pools,
    statistics: new Statistics(),
    profileOf: () => subject.profile,
    cpu: { configure: 'auto', objective: 'latency', cores, reconfigureIntervalMs: intervalMs },
    batchMaxOf: () => batchMax,
    logger: createLogger({ level: 'silent', format: 'json' }),
  });
  const points: StepPoint[] = [];
  let failed = 0;
  let requests = 0;
  const configuration = (): string => {
    const groups = pool.pools.states()[0]?.configuration?.groups;
    return groups === undefined ? 'on demand' : groupsText(groups);
  };
  const phases: StepOutcome['phases'][number][] = [];
  const startMs = performance.now();
  try {
    for (const batch of batches) {
      const untilMs = performance.now() + phaseMs;
      const first = points.length;
      while (performance.now() < untilMs) {
        progress(`${subject.name}: load step, batches of ${batch}, ${configuration()}`);
        const before = configuration();
        const sentMs = performance.now();
        controller.called(pool.key);
        const answers = await Promise.allSettled(Array.from({ length: batch }, async () => await pool.request()));
        failed += answers.filter(({ status }) => status === 'rejected').length;
        requests += batch;
        const nowMs = performance.now();
        points.push({ atMs: sentMs - startMs, batch, latencyMs: nowMs - sentMs, configuration: before });
      }
      const own = points.slice(first);
      const from = own[0]?.configuration ?? '';
      const changed = own.findIndex((point) => point.configuration !== from);
      const before = own.slice(0, changed < 0 ? own.length : changed);
      const steady = own.slice(Math.floor((own.length * 2) / 3));
      phases.push({
        batch,
        beforeMs: median(before.map(({ latencyMs }) => latencyMs)),
        steadyMs: median(steady.map(({ latencyMs }) => latencyMs)),
        from,
        to: own.at(-1)?.configuration ?? '',
      });
    }
  } finally {
    controller.close();
  }
  return { points, requests, failed, phases };
}

/** The part of a registry that the controller uses. */
function registryOf(key: string): Registry {
  const at = key.lastIndexOf('@');
  const version = {
    name: key.slice(0, at),
    version: key.slice(at + 1),
    key,
    settings: { sloMs: 1000, batching: { batchMax: 64, delayMs: 5 } },
  } as unknown as FunctionVersion;
  return { names: () => [version.name], versions: () => [version], find: () => version, onChange: () => undefined };
}
