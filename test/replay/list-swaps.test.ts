/** When a host changes a function's list of instances on the CPU, and to which: as recorded, and as a replay decides it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import { createLogger } from '../../src/host/records/logger.ts';
import { Statistics } from '../../src/host/records/statistics.ts';
import { PoolsController } from '../../src/host/pools/pools-controller.ts';
import { Xoshiro } from '../../src/replay/index.ts';
import { fourCoreProfile } from '../support/cpu-profile.ts';
import { FakePool, fakeRegistry } from '../support/fake-pool.ts';

/** What a host sees of a pool for some time: calls a second, the depth of the queue, cores, and what calls take. */
interface Phase {
  readonly ticks: number;
  readonly arrivalsPerSecond: number;
  readonly queueDepth: number;
  readonly cores: number;
  readonly startMs: number | undefined;
  readonly isRefused: boolean;
  readonly answersPerTick: number;
  readonly serviceMs: number;
}

interface Sequence {
  readonly objective: 'latency' | 'cores';
  readonly batchMax: number;
  readonly phases: readonly Phase[];
}

const sequences = Array.from({ length: 30 }, (_, seed) => sequenceOf(seed));

function sequenceOf(seed: number): Sequence {
  const random = new Xoshiro(seed);
  const upTo = (most: number): number => random.below(most);
  const phases = Array.from({ length: 8 }, (): Phase => {
    const arrivalsPerSecond = [0.5, 5, 60, 250, 400, 5000][upTo(6)]!;
    return {
      ticks: 1 + upTo(60),
      arrivalsPerSecond,
      queueDepth: (arrivalsPerSecond / 100) * [0.5, 1, 8][upTo(3)]!,
      cores: [4, 4, 2, 1, 0][upTo(5)]!,
      startMs: [undefined, 5, 300, 3000][upTo(4)],
      isRefused: upTo(4) === 0,
      answersPerTick: upTo(3) * 10,
      serviceMs: 4 + upTo(20),
    };
  });
  return { objective: upTo(3) === 0 ? 'cores' : 'latency', batchMax: [1, 16][upTo(2)]!, phases };
}

const tickMs = 500;

/** What the host's own controller decides: `12 <4,1,4> batches of 16` at tick 12. */
async function decidedByHost({ objective, batchMax, phases }: Sequence): Promise<string> {
  const pool = new FakePool();
  const controller = new PoolsController({
    registry: fakeRegistry,
    pools: pool.pools,
    statistics: new Statistics(),
    profileOf: () => fourCoreProfile,
    cpu: { configure: 'auto', objective, cores: 4, reconfigureIntervalMs: 2000 },
    batchMaxOf: () => batchMax,
    logger: createLogger({ level: 'silent', format: 'json' }),
  });
  const decided: string[] = [];
  let tick = 0;
  for (const phase of phases) {
    pool.set(phase);
    pool.cores = phase.cores;
    pool.failure = phase.isRefused ? 'there are too few cores' : undefined;
    for (const untilTick = tick + phase.ticks; tick < untilTick; tick++) {
      for (let answer = 0; answer < phase.answersPerTick; answer++)
        controller.answered('f@1', phase.serviceMs, phase.serviceMs, tick * tickMs + answer);
      const before = pool.configured.length;
      controller.called('f@1');
      controller.tick(tick * tickMs);
      for (const { configuration, cause } of pool.configured.slice(before)) {
        const groups = configuration.groups.map(
          ({ instances, threads, batch }) => `<${instances},${threads},${batch}>`,
        );
        decided.push(`${tick} ${groups.join('+')}/${configuration.batchTimeoutMs} ${cause}`);
        // By the next look the outcome is known.
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  }
  controller.close();
  return decided.join('; ');
}

const recordedPath = new URL('list-swaps.recorded.json', import.meta.url);

test('a host changes lists as recorded before the decision had one owner', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const found: string[] = [];
  for (const sequence of sequences) found.push(await decidedByHost(sequence));
  vi.useRealTimers();
  if (process.env['TURNTABLE_GOLDEN'] === 'record') writeFileSync(recordedPath, `${JSON.stringify(found, null, 1)}\n`);
  expect(found).toEqual(JSON.parse(readFileSync(recordedPath, 'utf8')));
});
