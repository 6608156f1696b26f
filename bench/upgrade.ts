/**
 * A rolling upgrade: three hosts and two workers of a former release are replaced one after the other, beside calls and
 * publications. `TURNTABLE_FORMER` names the folder of the former release, a built checkout with the same format between
 * members; without it both are this checkout.
 */
import { execFileSync } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { Xoshiro } from '../src/replay/index.ts';
import { redisMissing } from '../test/support/redis-server.ts';
import {
  BenchmarkNotPossible,
  tableOf,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
} from './benchmark.ts';
import { callOn, makeFunction, Outcomes, publishAndSee, type TestFunction } from './fleet/load.ts';
import { FleetSystem } from './fleet/system.ts';
import { projectRoot } from './servers.ts';
import { send } from './shared/requests.ts';

export const benchmark: Benchmark = {
  name: 'upgrade',
  description: 'does a rolling upgrade from TURNTABLE_FORMER lose or change an answer: three hosts, two workers',
  mustMeetAims: true,
  run,
};

async function run({ small, seed, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  if (redisMissing !== undefined) throw new BenchmarkNotPossible(redisMissing);
  const former = process.env['TURNTABLE_FORMER'] ?? projectRoot;
  // With two hosts each is replaced beside the other as well; test/fleet/upgrade.test.ts has three.
  const [hosts, workers] = small ? [2, 1] : [3, 2];
  const random = new Xoshiro(seed);
  await using system = await FleetSystem.start(hosts, workers, former);
  const published: TestFunction[] = [];
  const publish = async (host: number): Promise<void> => {
    const fn = await makeFunction(`dense-${published.length}`, random);
    await publishAndSee(system, fn, host);
    published.push(fn);
  };
  for (let host = 0; host < hosts; host++) await publish(host);
  const outcomes = new Outcomes();
  let isOver = false;
  const clients = Array.from({ length: small ? 3 : 8 }, async () => {
    await callOn(system, published, random, outcomes, () => isOver, small ? 25 : 0);
  });
  const answersMore = async (): Promise<void> => {
    const wanted = outcomes.answered + (small ? 20 : 2000);
    while (outcomes.answered < wanted && outcomes.troubles.length === 0) await delay(5);
  };
  system.useRelease(projectRoot);
  for (let host = 0; host < hosts; host++) {
    await answersMore();
    progress(`host ${host}`);
    await system.endHost(host);
    await system.restartHost(host);
    await system.settled();
    await publish(host);
    if (host >= workers) continue;
    progress(`worker ${host}`);
    await system.endWorker(host);
    await system.startWorker(host);
  }
  await answersMore();
  isOver = true;
  await Promise.all(clients);
  const missing: string[] = [];
  for (const { name } of published) {
    for (const url of system.urls) {
      const { status, text } = await send(`${url}/functions/${name}`);
      if (status !== 200) missing.push(`${name} at ${url}: ${status} ${text}`);
    }
  }
  const { answered, sentAgain, troubles, placements } = outcomes;
  return {
    settings: { hosts, workers, former: releaseIn(former), now: releaseIn(projectRoot) },
    tables: [
      tableOf(
        'Calls',
        [['answered', answered], ['sent again, because their host ended', sentAgain], ['troubles', troubles.length], ...placements] as const, // prettier-ignore
        [
          ['what', ([what]) => what],
          ['>count', ([, count]) => String(count)],
        ],
      ),
    ],
    figures: { answered, sentAgain, troubles: troubles.length },
    aims: [
      {
        aim: 'every call has one answer, equal to that of ONNX Runtime',
        met: troubles.length === 0 && answered > 0,
        reached: troubles.slice(0, 5).join('; ') || `${answered} of them`,
      },
      {
        aim: 'what was published before and between is at every host',
        met: missing.length === 0,
        reached: missing.slice(0, 5).join('; ') || `${published.length} functions`,
      },
    ],
    limits: ['hosts, workers, Redis and clients share one machine'],
  };
}

/** The commit of a checkout. */
function releaseIn(folder: string): string {
  try {
    return execFileSync('git', ['-C', folder, 'log', '-1', '--format=%h of %cs'], { encoding: 'utf8' }).trim();
  } catch {
    return 'unknown';
  }
}
