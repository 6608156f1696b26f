import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import bert from '../../../test/reference/packrat-bert.json' with { type: 'json' };
import resnet from '../../../test/reference/packrat-resnet.json' with { type: 'json' };
import { parsePoolProfile, type PoolProfile } from '../../profile/index.ts';
import { fillSockets, planPackrat, type PackratOptions, type PackratPlan } from './index.ts';
import { packratTable } from '../../../test/support/packrat-table.ts';

const models = [
  { name: 'BERT', reference: bert, profile: parsePoolProfile(bert) },
  { name: 'ResNet-50', reference: resnet, profile: parsePoolProfile(resnet) },
];

function latencyOf(plan: PackratPlan): number | null {
  return plan.state === 'planned' ? plan.latencyMs : null;
}

function mustBePlanned(plan: PackratPlan): Extract<PackratPlan, { state: 'planned' }> {
  if (plan.state !== 'planned') throw new Error('expected a plan');
  return plan;
}

/** Checks what holds for every plan. */
function expectValid(profile: PoolProfile, options: PackratOptions, plan: PackratPlan): void {
  const { latencyMs, groups, threadsIdle } = mustBePlanned(plan);
  const sum = (pick: (group: (typeof groups)[number]) => number): number =>
    groups.reduce((total, group) => total + group.instances * pick(group), 0);
  expect(sum(({ batch }) => batch)).toBe(options.batch);
  expect(sum(({ threads }) => threads) + threadsIdle).toBe(options.threads);
  expect(options.idleThreads === false && threadsIdle > 0).toBe(false);
  for (const { threads, batch, latencyMs: own } of groups) {
    const known = profile.latency[profile.threads.indexOf(threads)]?.[profile.batches.indexOf(batch)];
    expect(own).toBe(known);
  }
  expect(Math.max(...groups.map(({ latencyMs: own }) => own))).toBe(latencyMs);
}

describe.each(models)("the published table of $name's optimizer", ({ reference, profile }) => {
  test.each(reference.check as [number, number, number | null][])(
    'with %i threads and a batch of %i is answered with %s ms',
    (threads, batch, ms) => {
      const options = { threads, batch, idleThreads: false };
      const plan = planPackrat(profile, options);
      expect(latencyOf(plan)).toBe(ms);
      if (ms !== null) expectValid(profile, options, plan);
    },
  );

  test("the published table of $name's optimizer is reproduced in full, and its items are its own cells", () => {
    const table = packratTable(profile, { threads: 18, batch: 1024 });
    for (const [row, threads] of profile.threads.entries()) {
      for (const [column, batch] of profile.batches.entries()) {
        expect(table[threads]?.[batch]).toBe(profile.latency[row]?.[column]);
      }
    }
    expect(table.flatMap((row) => [row[0]]).every((cell, t) => cell === (t === 0 ? 0 : Infinity))).toBe(true);
  });

  test("the published table of $name's optimizer follows from its irreducible measurements alone", () => {
    const known = new Set(reference.irreducible.map(([threads, batch]) => `${threads} ${batch}`));
    const latency = profile.threads.map((threads, row) =>
      profile.batches.map((batch, column) =>
        known.has(`${threads} ${batch}`) ? (profile.latency[row]?.[column] ?? null) : null,
      ),
    );
    const whole = packratTable(profile, { threads: 18, batch: 1024 });
    const rebuilt = packratTable({ ...profile, latency }, { threads: 18, batch: 1024 });
    expect(rebuilt).toEqual(whole);
  });

  test('a plan is as fast as the table says, with all threads and with idle ones', () => {
    for (const idleThreads of [false, true]) {
      const table = packratTable(profile, { threads: 18, batch: 300, idleThreads });
      for (let threads = 1; threads <= 18; threads += 1) {
        for (const batch of [1, 7, 64, 73, 128, 255, 300]) {
          const expected = table[threads]?.[batch] ?? Infinity;
          const plan = planPackrat(profile, { threads, batch, idleThreads });
          expect(latencyOf(plan) ?? Infinity).toBe(expected);
        }
      }
    }
  });
});

describe("the configurations of the paper's Table 2", () => {
  const rows = bert.paperTable2 as [number, number, [number, number, number][], number, number][];

  test.each(rows)(
    'for %i threads and a batch of %i take the times of the paper',
    (threads, batch, groups, paperMs, tableMs) => {
      const cell = (t: number, b: number): number =>
        models[0]?.profile.latency[bert.threads.indexOf(t)]?.[bert.batches.indexOf(b)] ?? Infinity;
      const ours = latencyOf(planPackrat(models[0]?.profile as PoolProfile, { threads, batch, idleThreads: false }));
      expect(ours).toBeCloseTo(tableMs, 9);
      // The paper's configuration would take this long on its own measurements.
      expect(Math.max(...groups.map(([, t, b]) => cell(t, b)))).toBeCloseTo(paperMs, 9);
    },
  );

  test("the configurations of the paper's Table 2 are as fast as ours in 15 of 16 rows", () => {
    expect(rows.filter(([, , , paperMs, tableMs]) => Math.abs(paperMs - tableMs) < 1e-6)).toHaveLength(15);
  });
});

describe('idle threads', () => {
  const profile: PoolProfile = {
    unit: 'ms',
    threads: [2, 3],
    batches: [1, 2],
    latency: [
      [5, 8],
      [9, 20],
    ],
  };

  test('idle threads are left if using them would slow the batch down', () => {
    expect(planPackrat(profile, { threads: 3, batch: 2 })).toEqual({
      state: 'planned',
      batch: 2,
      latencyMs: 8,
      groups: [{ instances: 1, threads: 2, batch: 2, latencyMs: 8 }],
      threadsIdle: 1,
    });
    expect(latencyOf(planPackrat(profile, { threads: 3, batch: 2, idleThreads: false }))).toBe(20);
  });

  test.each([
    { model: models[0] as (typeof models)[number], cells: 30, most: 1.17 },
    { model: models[1] as (typeof models)[number], cells: 5, most: 1.05 },
  ])('make $cells cells of the table of $model.name faster, up to $most times', ({ model, cells, most }) => {
    const options = { threads: 18, batch: 1024 };
    const exact = packratTable(model.profile, options);
    const idle = packratTable(model.profile, { ...options, idleThreads: true });
    const gains = exact.flatMap((row, t) =>
      [...row].map((cell, b) => (cell === Infinity ? 1 : cell / (idle[t]?.[b] ?? 0))),
    );
    const above = gains.filter((gain) => gain > 1);
    expect(above).toHaveLength(cells);
    expect(Math.max(...above)).toBeCloseTo(most, 2);
    expect(gains.some((gain) => gain < 1)).toBe(false);
  });
});

describe('ties', () => {
  test('ties go to the fewest instances', () => {
    const profile: PoolProfile = {
      unit: 'ms',
      threads: [1, 4],
      batches: [1, 4],
      latency: [
        [10, null],
        [null, 10],
      ],
    };
    const plan = mustBePlanned(planPackrat(profile, { threads: 4, batch: 4 }));
    expect(plan.groups).toEqual([{ instances: 1, threads: 4, batch: 4, latencyMs: 10 }]);
  });

  test('ties go to instances of equal size if equally few', () => {
    const flat: PoolProfile = {
      unit: 'ms',
      threads: [1, 2, 3],
      batches: [1, 2, 3],
      latency: [[10, 10, 10], [10, 10, 10], [10, 10, 10]], // prettier-ignore
    };
    const plan = mustBePlanned(planPackrat(flat, { threads: 4, batch: 4, idleThreads: false }));
    expect(plan.groups).toEqual([{ instances: 2, threads: 2, batch: 2, latencyMs: 10 }]);
  });
});

describe('sockets', () => {
  const wide: PoolProfile = { unit: 'ms', threads: [4, 8, 16], batches: [4, 8, 16], latency: [[12, 16, 40], [6, 10, 20], [4, 6, 9]] }; // prettier-ignore

  test('no instance spans two sockets', () => {
    expect(mustBePlanned(planPackrat(wide, { threads: 16, batch: 16 })).groups[0]).toMatchObject({ threads: 16 });
    const split = mustBePlanned(planPackrat(wide, { threads: 16, batch: 16, sockets: [8, 8] }));
    expect(split.groups).toEqual([{ instances: 2, threads: 8, batch: 8, latencyMs: 10 }]);
  });

  test('an instance that fits no socket leaves the batch infeasible', () => {
    const fat: PoolProfile = { unit: 'ms', threads: [3], batches: [1], latency: [[5]] };
    expect(planPackrat(fat, { threads: 4, batch: 1 }).state).toBe('planned');
    expect(planPackrat(fat, { threads: 4, batch: 1, sockets: [2, 2] })).toEqual({ state: 'infeasible', batch: 1 });
  });

  test('sockets are filled in turn', () => {
    expect(fillSockets(24, 16)).toEqual([16, 8]);
    expect(fillSockets(16, 16)).toEqual([16]);
    expect(fillSockets(5, 2)).toEqual([2, 2, 1]);
  });
});

test('options out of range are refused by name', () => {
  const { profile } = models[0] as (typeof models)[number];
  expect(() => planPackrat(profile, { threads: 0, batch: 8 })).toThrow('threads is 0');
  expect(() => planPackrat(profile, { threads: 4, batch: 1.5 })).toThrow('batch is 1.5');
  expect(() => planPackrat(profile, { threads: 4, batch: 1e6 })).toThrow(
    'batch is 1000000, but must be a whole number from 1 to 65536',
  );
  expect(() => planPackrat(profile, { threads: 4, batch: 8, sockets: [2, 3] })).toThrow('5 threads together');
});

test('64 threads and a batch of 1024 are planned', () => {
  const threads = Array.from({ length: 64 }, (_, index) => index + 1);
  const batches = Array.from({ length: 11 }, (_, index) => 2 ** index);
  const latency = threads.map((t) => batches.map((b) => 3 + (2 * b) / t ** 0.7 + 0.1 * t + ((t * 7 + b * 13) % 5)));
  const profile: PoolProfile = { unit: 'ms', threads, batches, latency };
  for (const idleThreads of [true, false]) {
    expect(planPackrat(profile, { threads: 64, batch: 1024, idleThreads }).state).toBe('planned');
  }
});

/** Every multiset of items, in order of index, that fits: the definition itself. */
function bruteForce(
  profile: PoolProfile,
  options: Required<Pick<PackratOptions, 'threads' | 'batch' | 'idleThreads' | 'sockets'>>,
): { latencyMs: number; instances: number } {
  const items = profile.threads.flatMap((threads, row) =>
    profile.batches.map((batch, column) => ({ threads, batch, latencyMs: profile.latency[row]?.[column] ?? Infinity })),
  );
  let best = { latencyMs: Infinity, instances: Infinity };
  const visit = (free: readonly number[], rest: number, latencyMs: number, instances: number): void => {
    const left = free.reduce((sum, threads) => sum + threads, 0);
    if (rest === 0 && (options.idleThreads || left === 0)) {
      if (latencyMs < best.latencyMs || (latencyMs === best.latencyMs && instances < best.instances))
        best = { latencyMs, instances };
    }
    for (const item of items) {
      if (item.batch > rest || item.latencyMs === Infinity || item.latencyMs > best.latencyMs) continue;
      for (const [socket, threads] of free.entries()) {
        if (item.threads > threads) continue;
        visit(
          free.with(socket, threads - item.threads),
          rest - item.batch,
          Math.max(latencyMs, item.latencyMs),
          instances + 1,
        );
      }
    }
  };
  visit(options.sockets, options.batch, -Infinity, 0);
  return best;
}

const smallProfile = fc
  .tuple(
    fc.uniqueArray(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 3 }),
    fc.uniqueArray(fc.constantFrom(1, 2, 3, 4, 5), { minLength: 1, maxLength: 3 }),
  )
  .chain(([threads, batches]) =>
    fc
      .array(
        fc.array(fc.option(fc.integer({ min: 1, max: 9 }), { freq: 4 }), {
          minLength: batches.length,
          maxLength: batches.length,
        }),
        { minLength: threads.length, maxLength: threads.length },
      )
      .map((latency): PoolProfile => ({
        unit: 'ms',
        threads: threads.toSorted((a, b) => a - b),
        batches: batches.toSorted((a, b) => a - b),
        latency,
      })),
  );

test('brute force finds nothing faster, nor anything as fast with fewer instances', () => {
  fc.assert(
    fc.property(
      smallProfile,
      fc.integer({ min: 1, max: 6 }),
      fc.integer({ min: 1, max: 6 }),
      fc.boolean(),
      fc.integer({ min: 1, max: 6 }),
      (profile, threads, batch, idleThreads, perSocket) => {
        const options = { threads, batch, idleThreads, sockets: fillSockets(threads, perSocket) };
        const expected = bruteForce(profile, options);
        const plan = planPackrat(profile, options);
        expect(latencyOf(plan) ?? Infinity).toBe(expected.latencyMs);
        if (plan.state === 'infeasible') return;
        expectValid(profile, options, plan);
        expect(plan.groups.reduce((sum, { instances }) => sum + instances, 0)).toBe(expected.instances);
        const unsplit = packratTable(profile, { threads, batch, idleThreads })[threads]?.[batch];
        expect(perSocket < threads || unsplit === expected.latencyMs).toBe(true);
      },
    ),
    { numRuns: 300 },
  );
});

test('an answer holds for any batch that the profile can make up, and other batches are infeasible', () => {
  fc.assert(
    fc.property(
      smallProfile,
      fc.integer({ min: 1, max: 12 }),
      fc.integer({ min: 1, max: 40 }),
      fc.boolean(),
      (profile, threads, batch, idleThreads) => {
        const options = { threads, batch, idleThreads };
        const plan = planPackrat(profile, options);
        expect(latencyOf(plan) ?? Infinity).toBe(packratTable(profile, options)[threads]?.[batch]);
        if (plan.state === 'planned') expectValid(profile, options, plan);
      },
    ),
  );
});
