/** Handlers that invoke handlers, on fewer cores than there are handlers. */
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { functionVersion } from '../../../test/host/fake-store.ts';
import { LiveScheduler, type Placed } from '../../live/index.ts';
import { policies } from '../../schedule/index.ts';
import { leaseAgain, LentLease } from './lent-lease.ts';

/** A call of a handler: the calls that it waits for, in rounds of some at once. */
interface Call {
  readonly fn: number;
  readonly rounds: readonly (readonly Call[])[];
}

const { call } = fc.letrec<{ call: Call }>((tie) => ({
  call: fc.record({
    fn: fc.nat(3),
    rounds: fc.oneof(
      { maxDepth: 4, depthSize: 'small' },
      fc.constant([]),
      fc.array(fc.array(tie('call'), { minLength: 1, maxLength: 3 }), { maxLength: 2 }),
    ),
  }),
}));

interface Seen {
  /** The clock: a step of a handler takes 10 ms. */
  nowMs: number;
  /** Most handlers that worked at once with a lease. */
  most: number;
  working: number;
  /** Handlers that went on without a lease, as theirs would have come too late. */
  without: number;
}

/** @returns whether it was answered; false: it was shed */
async function run({ fn, rounds }: Call, live: LiveScheduler, sloMs: number, seen: Seen): Promise<boolean> {
  const wish = { sinceMs: seen.nowMs };
  const known = functionVersion(`f${fn}`);
  const version = { ...known, settings: { ...known.settings, sloMs, admission: 'shed' as const } };
  const placed = await live.submit(version, undefined, wish);
  if (placed.kind !== 'cpu') return false;
  const lent = new LentLease(placed);
  const work = async (): Promise<void> => {
    const { lease } = lent;
    if (lease === undefined) seen.without++;
    else seen.most = Math.max(seen.most, ++seen.working);
    await turn();
    seen.nowMs += 10;
    if (lease !== undefined) seen.working--;
  };
  await work();
  for (const round of rounds) {
    const invoke = lent.lending(
      async () => {
        await Promise.all(round.map((each) => run(each, live, sloMs, seen)));
        return [];
      },
      () => leaseAgain(live, version, wish),
    );
    await invoke([]);
    await work();
  }
  lent.done({ runMs: 1 });
  return true;
}

const nobody = (): Seen => ({ nowMs: 0, most: 0, working: 0, without: 0 });

const machine = (cores: number, seen: Seen): LiveScheduler =>
  new LiveScheduler({
    policy: policies.best,
    cpu: { cores, memoryBytes: Infinity },
    cpuOffer: () => ({ latencyMs: 10, cores: 1 }),
    now: () => seen.nowMs,
  });

test('handlers that wait for handlers all end on one core, and never work beside each other', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(call, { minLength: 1, maxLength: 4 }), fc.constantFrom(1, 2), async (calls, cores) => {
      const seen = nobody();
      const live = machine(cores, seen);
      const answered = await Promise.all(calls.map((each) => run(each, live, 1e9, seen)));
      expect(answered).toEqual(calls.map(() => true));
      expect(seen.most).toBeLessThanOrEqual(cores);
      expect(seen).toMatchObject({ working: 0, without: 0 });
      // Every core is free again.
      const next = await Promise.all(
        Array.from({ length: cores }, () => live.submit(functionVersion('next'), undefined)),
      );
      expect(next).toMatchObject(next.map(() => ({ kind: 'cpu', queueMs: 0 })));
    }),
  );
});

test('a handler that resumes has the next core, before calls of any priority and SLO that have not begun', async () => {
  const other = fc.record({
    priority: fc.integer({ min: 1, max: 3 }),
    sloMs: fc.constantFrom(1, 50, 1e9),
    isAhead: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(other, { maxLength: 6 }), async (others) => {
      const live = machine(1, nobody());
      const version = functionVersion('paused');
      const first = await live.submit(version, undefined);
      if (first.kind !== 'cpu') throw new Error(`it was placed ${first.kind}`);
      const lent = new LentLease(first);
      const began: string[] = [];
      const arrive = async ({ priority, sloMs }: (typeof others)[number]): Promise<void> => {
        const placed = await live.submit(functionVersion('other'), undefined, { priority, sloMs });
        began.push('other');
        if (placed.kind === 'cpu') placed.done({ runMs: 1 });
      };
      let runs!: (lease: Extract<Placed, { kind: 'cpu' }>) => void;
      const busy = new Promise<Extract<Placed, { kind: 'cpu' }>>((resolve) => (runs = resolve));
      const wait = lent.lending(
        async () => {
          const running = await live.submit(functionVersion('running'), undefined);
          if (running.kind !== 'cpu') throw new Error(`it was placed ${running.kind}`);
          for (const each of others) if (each.isAhead) void arrive(each);
          runs(running);
          return [];
        },
        () => leaseAgain(live, version, { sinceMs: 0 }),
      );
      const handler = async (): Promise<void> => {
        await wait([]);
        began.push(lent.lease === undefined ? 'resumed without a core' : 'resumed');
        lent.done({ runMs: 1 });
      };
      void handler();
      const running = await busy;
      await turn();
      for (const each of others) if (!each.isAhead) void arrive(each);
      expect(began).toEqual([]);
      running.done({ runMs: 1 });
      await turn();
      expect(began).toEqual(['resumed', ...others.map(() => 'other')]);
    }),
  );
});

test('a handler that would come too late goes on without a core, and all cores are free afterwards', async () => {
  let without = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(call, { minLength: 2, maxLength: 8 }), async (calls) => {
      const seen = nobody();
      const live = machine(1, seen);
      await Promise.all(calls.map((each) => run(each, live, 25, seen)));
      without += seen.without;
      expect(seen).toMatchObject({ most: 1, working: 0 });
      expect(await live.submit(functionVersion('next'), undefined)).toMatchObject({ kind: 'cpu', queueMs: 0 });
    }),
    { numRuns: 300 },
  );
  expect(without).toBeGreaterThan(0);
});
