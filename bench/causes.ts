/**
 * Does a host name the true cause of missed SLOs? Faults are planted one at a time and two at once; the head of the page
 * (its data and the text of `turntable top`) and `/metrics` must agree. A healthy host with few calls names none.
 */
import { availableParallelism, loadavg } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import type { TroubleAnswer, TroubleRow } from '../src/host/dashboard/index.ts';
import { formatMs } from '../src/tools/index.ts';
import { faults, neighbours, redisDies, saysRedisIsDown, type Fault, type Needs } from './causes/faults.ts';
import { scene, type Scene } from './causes/scene.ts';
import { percent } from './shared/statistics.ts';

const healthyName = 'healthy';
const redisName = 'Redis dies';
/** Of a small run, which is a test: those that take no seconds by themselves. */
const smallNames: ReadonlySet<string> = new Set(['a handler that fails', healthyName]);

export const benchmark: Benchmark = {
  name: 'causes',
  description: 'is the cause that a host names for missed SLOs the true one, and does a healthy host name none',
  rowNames: () => [...faults.map(({ name }) => name), redisName, healthyName],
  run,
};

interface Row {
  readonly name: string;
  readonly said: string;
  readonly isTrue: boolean;
  readonly agrees: boolean;
  readonly missed: number;
  /** Beyond the SLO, of calls that have ended; and as much of it as nothing explains. */
  readonly lateMs: number;
  readonly unexplainedMs: number;
}

async function run({ small, minutes, rows: only, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const isChosen = (name: string): boolean => only?.includes(name) ?? (!small || smallNames.has(name));
  const found: Row[] = [];
  const left: string[] = [];
  for (const fault of faults) {
    if (!isChosen(fault.name)) continue;
    progress(fault.name);
    const row = await tried(fault);
    if (row === undefined) left.push(fault.name);
    else found.push(row);
  }
  if (isChosen(redisName)) {
    progress(redisName);
    await redisDies(async (flags, kill) => void found.push(await withoutRedis(flags, kill)));
  }
  const healthyMinutes = minutes ?? (small ? 0.05 : 20);
  const healthy = isChosen(healthyName) ? await healthyHost(healthyMinutes, progress) : undefined;
  return report(found, left, healthy);
}

/** Undefined where this machine has not what it needs. */
async function tried(fault: Fault): Promise<Row | undefined> {
  const needs = fault.needs === undefined ? {} : await fault.needs();
  if (needs === undefined) return undefined;
  try {
    return await triedWith(fault, needs);
  } finally {
    await needs[Symbol.asyncDispose]?.();
  }
}

async function triedWith({ name, functions, flags, plant, truth }: Fault, needs: Needs): Promise<Row> {
  let row: Row | undefined;
  const act = async (run: Scene): Promise<void> => {
    const planted = await plant(run, needs);
    try {
      const { worst, refused, limited } = await run.trouble();
      if (truth === 'no miss') {
        row = nothingMissed(name, worst, refused.calls, await run.top());
        return;
      }
      if ('limited' in truth) {
        row = tooMany(name, truth.limited, { worst, limited }, await run.top(), await run.metricsText());
        return;
      }
      const isStarved = truth.isStarved === true && loadavg()[0]! >= 2 * availableParallelism();
      // Two causes have facts: where others have the cores, the planted one may be the second.
      const names = ({ causes, facts }: TroubleRow): boolean =>
        (causes.slice(0, isStarved ? 2 : 1).some(({ cause }) => truth.causes.includes(cause)) &&
          truth.facts.test(facts)) ||
        (isStarved && causes[0]?.cause === 'busy' && /[5-9]\d% by others/.test(facts));
      // Of two faults, one may be what most calls of one function wait for, and the other of another.
      const asked = (worst.find(names) ?? worst[0])?.name ?? Object.keys(functions)[0]!;
      const { row: told, top, countsAgree } = await run.said(asked);
      const missed = Object.values(await run.metrics(asked)).reduce((sum, count) => sum + count, 0);
      row = {
        name,
        said: told === undefined ? 'nothing' : `${told.causes[0]?.words}: ${told.facts}`,
        isTrue: told !== undefined && names(told),
        agrees: top.includes(`${asked}: ${told?.causes[0]?.words ?? ''}: `) && countsAgree,
        missed,
        ...(await run.missedTime()),
      };
    } finally {
      if (planted !== undefined)
        await (Symbol.asyncDispose in planted ? planted[Symbol.asyncDispose]() : planted[Symbol.dispose]());
    }
  };
  await scene(functions, [...flags, ...(needs.flags ?? [])], act, needs.environment);
  return row!;
}

/** Requests were over a limit: that is said in a sentence of its own, and no function has trouble. */
function tooMany(
  name: string,
  truth: RegExp,
  { worst, limited: [said] }: Pick<TroubleAnswer, 'worst' | 'limited'>,
  top: string,
  metrics: string,
): Row {
  const counted = /^turntable_errors_total\{code="rate-limited"\} (\d+)/m.exec(metrics)?.[1];
  return {
    name,
    said: said ?? 'nothing',
    isTrue: said !== undefined && truth.test(said) && worst.length === 0,
    agrees: said !== undefined && top.includes(said) && said.startsWith(`${counted} `),
    missed: 0,
    lateMs: 0,
    unexplainedMs: 0,
  };
}

/** Calls were refused: that is counted, and no function has trouble. */
function nothingMissed(name: string, worst: readonly TroubleRow[], refused: number, top: string): Row {
  const said = worst[0]?.facts;
  return {
    name,
    said: said ?? `nothing, and ${refused} calls refused`,
    isTrue: said === undefined && refused > 0,
    agrees: said !== undefined || / 0 of \d+ functions? miss/.test(top),
    missed: 0,
    lateMs: 0,
    unexplainedMs: 0,
  };
}

async function withoutRedis(flags: readonly string[], kill: () => Promise<void>): Promise<Row> {
  let row: Row | undefined;
  await scene({ f: {} }, flags, async (run) => {
    await run.call('f');
    await kill();
    let trouble = await run.trouble();
    for (const endMs = performance.now() + 30_000; !saysRedisIsDown(trouble) && performance.now() < endMs;) {
      await pause(200);
      trouble = await run.trouble();
    }
    const text = trouble.dependencies[0]?.text;
    // The reason in brackets changes: a closed connection is refused from then on.
    const isInTop = text !== undefined && (await run.top()).includes(text.replace(/ \(.*/, ''));
    const isCounted = (await run.metricsText()).includes('turntable_dependency_up{dependency="redis"} 0');
    row = {
      name: redisName,
      said: text ?? 'nothing',
      isTrue: saysRedisIsDown(trouble) && trouble.worst.length === 0,
      agrees: isInTop && isCounted,
      missed: 0,
      lateMs: 0,
      unexplainedMs: 0,
    };
  });
  return row!;
}

interface Healthy {
  readonly minutes: number;
  readonly looks: number;
  readonly named: readonly string[];
}

/** Few calls, a first call now and then, and a busy neighbour for half of the time. */
async function healthyHost(minutes: number, progress: (text: string) => void): Promise<Healthy> {
  const names = ['seldom', 'often', 'once'];
  const named: string[] = [];
  let looks = 0;
  await scene(Object.fromEntries(names.map((name) => [name, { settings: { slo: '2s' } }])), [], async (run) => {
    const endMs = performance.now() + minutes * 60_000;
    await run.call('once');
    let busy: Disposable | undefined;
    try {
      for (let round = 0; performance.now() < endMs || round === 0; round++) {
        if (round % 60 === 30) busy = neighbours();
        if (round % 60 === 0) busy?.[Symbol.dispose]();
        await run.call('often');
        if (round % 12 === 0) await run.call('seldom');
        const { worst, dependencies } = await run.trouble();
        looks++;
        named.push(...worst.map(({ name, facts }) => `${name}: ${facts}`), ...dependencies.map(({ text }) => text));
        progress(`${healthyName}, ${looks} looks, ${named.length} causes named`);
        await pause(Math.max(0, Math.min(2500, endMs - performance.now())));
      }
    } finally {
      busy?.[Symbol.dispose]();
    }
  });
  return { minutes, looks, named };
}

function report(rows: readonly Row[], left: readonly string[], healthy: Healthy | undefined): BenchmarkResult {
  const right = rows.filter(({ isTrue }) => isTrue).length;
  const agreed = rows.filter(({ agrees }) => agrees).length;
  // Each fault counts alike, however long its calls took.
  const shares = rows.filter(({ lateMs }) => lateMs > 0).map(({ lateMs, unexplainedMs }) => unexplainedMs / lateMs);
  const share = shares.length === 0 ? 0 : shares.reduce((sum, each) => sum + each, 0) / shares.length;
  const most = Math.max(0, ...shares);
  return {
    settings: {
      faults: rows.length,
      healthyMinutes: healthy?.minutes ?? 0,
      loadAverageOf15Minutes: Math.round(loadavg()[2]!),
    },
    tables: [
      {
        title: 'What a host says of planted faults',
        provenance: { kind: 'measured' },
        columns: ['FAULT', 'TRUE', 'ALL AGREE', '>MISSED', '>BEYOND SLO', '>UNEXPLAINED', 'SAID'],
        rows: [
          ...rows.map(({ name, said, isTrue, agrees, ...counts }) => [
            name,
            isTrue ? 'yes' : 'no',
            agrees ? 'yes' : 'no',
            String(counts.missed),
            formatMs(counts.lateMs),
            counts.lateMs === 0 ? '-' : percent(counts.unexplainedMs / counts.lateMs),
            said,
          ]),
          ...(healthy === undefined
            ? []
            : [
                [
                  healthyName,
                  healthy.named.length === 0 ? 'yes' : 'no',
                  '-',
                  '-',
                  '-',
                  '-',
                  healthy.named[0] ?? 'nothing',
                ],
              ]),
        ],
      },
    ],
    figures: {
      faults: rows.length,
      trueCauses: right,
      agreed,
      unexplainedShare: share,
      unexplainedShareMost: most,
      healthyLooks: healthy?.looks ?? 0,
      healthyCausesNamed: healthy?.named.length ?? 0,
    },
    aims: [
      {
        aim: 'the true cause of at least 9 of 10 faults',
        met: right >= 0.9 * rows.length,
        reached: `${right} of ${rows.length}`,
      },
      {
        aim: 'page, top and /metrics say the same',
        met: agreed === rows.length,
        reached: `${agreed} of ${rows.length}`,
      },
      {
        aim: 'at most 20% of the missed time unexplained',
        met: share <= 0.2,
        reached: `${percent(share)} in the mean of the faults, ${percent(most)} at most`,
      },
      {
        aim: 'a healthy host names no cause',
        met: (healthy?.named.length ?? 0) === 0,
        reached: `${healthy?.named.length ?? 0} in ${healthy?.looks ?? 0} looks`,
      },
    ],
    limits: [
      'missed time: what calls that have ended took beyond their SLO; calls that are open still add none',
      'where other programs fill the cores, time that no part of a call accounts for was a wait for them',
      ...(left.length === 0 ? [] : [`what this machine cannot plant: ${left.join(', ')}`]),
    ],
  };
}
