/** The live shell under random calls, failures and changes. */
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Bench, gpuOnly, wholeBytes } from '../../test/support/gpu-shell.ts';
import type { GpuErrorCode } from '../gpu/index.ts';
import { policies, type Policy } from '../schedule/index.ts';

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

type Step =
  | { readonly kind: 'arrive'; readonly index: number; readonly leavesAfterMs: number | undefined }
  | { readonly kind: 'pass'; readonly ms: number }
  | { readonly kind: 'fail'; readonly code: GpuErrorCode }
  | { readonly kind: 'die' | 'back' }
  | { readonly kind: 'read'; readonly outcome: GpuErrorCode | 'refused' }
  | { readonly kind: 'resize'; readonly functions: number }
  | { readonly kind: 'hold'; readonly index: number; readonly ms: number }
  | { readonly kind: 'plan'; readonly index: number; readonly executed: number }
  | { readonly kind: 'remove' | 'offer' | 'unload' | 'pin' | 'preload'; readonly index: number };

const functionCount = 6;
const index = fc.nat({ max: functionCount - 1 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      kind: fc.constant('arrive' as const),
      index,
      leavesAfterMs: fc.option(fc.nat({ max: 40 }), { nil: undefined, freq: 4 }),
    }),
  },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat({ max: 30 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('fail' as const),
      code: fc.constantFrom<GpuErrorCode>('out-of-memory', 'invalid', 'weights-unreadable', 'host-memory'),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('die' as const, 'back' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('read' as const),
      outcome: fc.constantFrom<GpuErrorCode | 'refused'>('weights-unreadable', 'refused', 'refused'),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('resize' as const), functions: fc.integer({ min: 0, max: 6 }) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('hold' as const), index, ms: fc.nat({ max: 60 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('plan' as const), index, executed: fc.constantFrom(1, 2, 4, 4) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('remove' as const, 'offer' as const, 'unload' as const, 'pin' as const, 'preload' as const),
      index,
    }),
  },
);

async function take(bench: Bench, removing: Map<number, Promise<void>>, step: Step): Promise<void> {
  switch (step.kind) {
    case 'arrive': {
      const caller = new AbortController();
      if (step.leavesAfterMs !== undefined) setTimeout(() => caller.abort(), step.leavesAfterMs);
      if (step.index % 2 === 1) bench.arrive(step.index, caller.signal);
      // Some come together, so that some are joined.
      else for (let call = 0; call <= step.index % 3; call++) bench.arriveJoined(step.index, caller.signal);
      return;
    }
    case 'pass':
      await pass(step.ms);
      return;
    case 'fail':
      bench.process.failures.push(step.code);
      return;
    case 'die':
      bench.process.die();
      bench.shell.lost();
      return;
    case 'back':
      bench.back();
      return;
    case 'read':
      bench.process.unread.push(step.outcome);
      return;
    case 'resize':
      bench.resizeHost(step.functions * wholeBytes);
      return;
    case 'hold':
      void holdFor(bench, `f${step.index}@1`, step.ms);
      return;
    case 'plan':
      if (!removing.has(step.index)) bench.offer(step.index, {}, step.executed);
      return;
    case 'remove': {
      // As the host does: the next function of that name comes when this one is gone.
      const removed = bench.remove(step.index);
      removing.set(step.index, removed);
      void removed.then(() => removing.delete(step.index));
      return;
    }
    case 'offer':
    case 'pin':
      if (removing.has(step.index)) return;
      bench.offer(step.index, { pinned: step.kind === 'pin' && step.index === 0 });
      if (step.index % 2 === 0) bench.join(step.index);
      return;
    case 'unload':
      void bench.shell.functions.unload(`f${step.index}@1`);
      return;
    case 'preload':
      bench.preload(step.index);
      return;
  }
}

/** As a check does. */
async function holdFor(bench: Bench, key: string, ms: number): Promise<void> {
  bench.holds++;
  const held = await bench.shell.holdInHost(key).catch(() => 'unreadable' as const);
  bench.holds--;
  if (typeof held !== 'string') setTimeout(() => held[Symbol.dispose](), ms);
}

test('whatever happens, each invocation ends once, no GPU is overfull, and recorded layers are really there', async () => {
  let joinedRuns = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 80 }),
      fc.constantFrom<Policy>(gpuOnly, policies.best, policies.artifact, { ...gpuOnly, admission: 'shed' }),
      fc.boolean(),
      fc.constantFrom(0, 25),
      fc.constantFrom(0, 4),
      fc.constantFrom(undefined, 2, 4),
      fc.constantFrom(1, 0.05),
      async (steps, policy, hasVariants, loadAnswerMs, outputMs, inHost, stretch) => {
        const hostBytes = inHost && inHost * wholeBytes;
        const bench = new Bench({ gpuCount: 2, functions: functionCount, policy, hasVariants, hostBytes });
        bench.process.diskMs = 30;
        bench.process.loadAnswerMs = loadAnswerMs;
        bench.process.outputMs = outputMs;
        bench.process.stretch = stretch;
        for (const even of [0, 2, 4]) bench.join(even);
        const removing = new Map<number, Promise<void>>();
        for (const each of steps) await take(bench, removing, each);
        bench.process.failures.length = 0;
        bench.process.unread.length = 0;
        if (hostBytes !== undefined) bench.resizeHost(hostBytes);
        bench.back();
        await pass(20_000);
        expect(bench.outcomes).toHaveLength(bench.arrived);
        // Neither calls nor checks wait for ever.
        expect(bench.holds).toBe(0);
        expect(bench.defects).toEqual([]);
        joinedRuns += bench.process.rows.filter((rows) => rows > 1).length;
        expect(bench.process.overfull).toBeUndefined();
        expect(bench.disagreements()).toEqual([]);
        const ran = bench.outcomes.filter((outcome) => 'kind' in outcome && outcome.kind === 'gpu');
        expect(new Set(ran.map((outcome) => 'result' in outcome && outcome.result)).size).toBe(ran.length);
        bench.shell.close();
      },
    ),
    { numRuns: 300 },
  );
  // Otherwise nothing was joined.
  expect(joinedRuns).toBeGreaterThan(0);
});

test('a function whose removal waits for its run is not read again when the process ends', async () => {
  const bench = new Bench({ gpuCount: 2, functions: 2, policy: gpuOnly, hostBytes: 2 * wholeBytes });
  bench.process.diskMs = 30;
  bench.arrive(1);
  void bench.remove(1);
  bench.process.die();
  bench.shell.lost();
  // What was ordered of it meanwhile ends with it.
  bench.process.die();
  bench.back();
  await pass(20_000);
  expect(bench.outcomes).toHaveLength(bench.arrived);
  expect(bench.disagreements()).toEqual([]);
  bench.shell.close();
});

test('a function that is published again has nothing of what was still being read for the removed one', async () => {
  const bench = new Bench({ gpuCount: 2, functions: 2, policy: gpuOnly, hostBytes: 2 * wholeBytes });
  bench.process.diskMs = 30;
  const caller = new AbortController();
  bench.arrive(1, caller.signal);
  caller.abort();
  await pass(0);
  await bench.remove(1);
  bench.offer(1, {}, 1);
  await pass(20_000);
  expect(bench.outcomes).toHaveLength(bench.arrived);
  expect(bench.disagreements()).toEqual([]);
  bench.shell.close();
});

test('a call whose input a GPU has found invalid is placed once more, and not again when that GPU is lost', async () => {
  const bench = new Bench({ gpuCount: 2, functions: 2, policy: { ...gpuOnly, admission: 'shed' } });
  bench.process.diskMs = 30;
  bench.join(0);
  bench.process.failures.push('invalid');
  bench.arriveJoined(0);
  await pass(25);
  await pass(26);
  bench.process.die();
  bench.shell.lost();
  bench.back();
  await pass(20_000);
  expect(bench.outcomes).toHaveLength(bench.arrived);
  bench.shell.close();
});

test('a process that is lost is sent no further read, by what no longer holds its place', async () => {
  const bench = new Bench({ gpuCount: 2, functions: functionCount, policy: gpuOnly, hostBytes: 2 * wholeBytes });
  bench.process.diskMs = 30;
  bench.process.unread.push('refused');
  bench.join(0);
  const steps: readonly Step[] = [
    { kind: 'arrive', index: 0, leavesAfterMs: undefined },
    { kind: 'hold', index: 1, ms: 0 },
    { kind: 'die' },
  ];
  for (const each of steps) await take(bench, new Map(), each);
  bench.back();
  await pass(20_000);
  expect(bench.outcomes).toHaveLength(bench.arrived);
  expect(bench.disagreements()).toEqual([]);
  bench.shell.close();
});
