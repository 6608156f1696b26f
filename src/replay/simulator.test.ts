import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { offerSheet, smallGpus, type OfferShape } from '../../test/support/offers.ts';
import { policies, type OfferSheet, type Policy } from '../schedule/index.ts';
import { DueHeap } from './simulator-heap.ts';
import { PcieLinks } from './simulator-links.ts';
import { ReportBuilder } from './tally/builder.ts';
import type { SimulatorOptions } from './simulator-options.ts';
import { runSimulation } from './simulator.ts';
import type { EvictionRecord, Outcome, PlanChangeRecord, TraceInvocation } from './types.ts';

interface Observed {
  readonly outcomes: Outcome[];
  readonly evictions: EvictionRecord[];
  readonly busyMs: number[];
  readonly planChanges: PlanChangeRecord[];
}

function simulateSmall(
  arrivals: readonly (readonly [arrivalMs: number, functionIndex: number])[],
  shapes: readonly (OfferShape & { readonly sheet?: Partial<Omit<OfferSheet, 'gpus'>> })[],
  options: Partial<SimulatorOptions> & { readonly policy?: Policy } = {},
  transform: (invocations: readonly TraceInvocation[]) => Iterable<TraceInvocation> = (invocations) => invocations,
): Observed {
  const { gpus = smallGpus(1, 1000), policy = policies.artifact, ...rest } = options;
  const observed: Observed = { outcomes: [], evictions: [], planChanges: [], busyMs: gpus.map(() => 0) };
  const invocations = arrivals.map(([arrivalMs, functionIndex]): TraceInvocation => ({ arrivalMs, functionIndex }));
  runSimulation(
    { functionNames: [], invocations: () => transform(invocations) },
    {
      gpus,
      policy,
      cpu: { cores: 1, memoryBytes: Infinity },
      sheetOf: (index) => offerSheet(gpus.length, shapes[index]!, shapes[index]!.sheet),
      observer: {
        outcome: (outcome) => observed.outcomes.push({ ...outcome }),
        eviction: (record) => observed.evictions.push({ ...record }),
        planChange: (record) => observed.planChanges.push(record),
        busy: (gpu, fromMs, toMs) => (observed.busyMs[gpu]! += toMs - fromMs),
      },
      ...rest,
    },
  );
  return observed;
}

/** The GPU whose link a GPU borrows on p3.8xlarge: the one two numbers on, below the other switch. */
const lenders = (gpu: number): number[] => [(gpu + 2) % 4];
const residencyOf = ({ placement }: Outcome): string | undefined =>
  placement.kind === 'gpu' ? placement.residency : undefined;
const ends = ({ outcomes }: Observed): number[] => outcomes.map(({ endMs }) => endMs);

describe('times', () => {
  test('a cold start takes its load and the rest of its execution, a warm start only its execution', () => {
    const observed = simulateSmall(
      [
        [0, 0],
        [100, 0],
      ],
      [{ layers: [40] }],
    );
    // The load moves 40 bytes at a byte a millisecond; 1 ms of the execution is left when it ends.
    expect(ends(observed)).toEqual([41, 110]);
    expect(observed.outcomes.map(({ placement }) => placement)).toEqual([
      { kind: 'gpu', gpu: 0, residency: 'cold' },
      { kind: 'gpu', gpu: 0, residency: 'warm' },
    ]);
    expect(observed.busyMs).toEqual([51]);
  });

  test('all calls of a joined run end together, also after a cold start', () => {
    const arrivals = Array.from({ length: 6 }, () => [0, 0] as const);
    const batches = [
      { rows: 2, ms: 12 },
      { rows: 4, ms: 16 },
    ];
    const shapes = [{ layers: [40], batches, sheet: { sloMs: 1000 } }];
    const observed = simulateSmall(arrivals, shapes, { policy: policies.best });
    // The load ends after 40 ms; 1 ms of a single run is left then, or 7 ms of a run of four.
    expect(ends(observed)).toEqual([47, 47, 47, 47, 59, 59]);
    expect(observed.busyMs).toEqual([expect.closeTo(28)]);
    const oneByOne = simulateSmall(arrivals, [{ ...shapes[0]!, batches: undefined }], { policy: policies.best });
    expect(ends(oneByOne)).toEqual([41, 51, 61, 71, 81, 91]);
  });

  test('a joined run whose GPU is lost ends for all its calls on another GPU', () => {
    const arrivals = Array.from({ length: 5 }, () => [0, 0] as const);
    const shapes = [{ layers: [40], batches: [{ rows: 4, ms: 16 }], sheet: { sloMs: 1000 } }];
    const gpuChanges = [{ kind: 'gpu-lost', gpu: 0, atMs: 45 } as const];
    const observed = simulateSmall(arrivals, shapes, {
      policy: policies.best,
      gpus: smallGpus(2, 1000),
      gpuChanges,
    });
    expect(observed.outcomes.map(({ sequence }) => sequence).toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3, 4]);
    expect(observed.outcomes.map(({ placement }) => placement)).toEqual(
      arrivals.map(() => ({ kind: 'gpu', gpu: 1, residency: expect.any(String) as string })),
    );
  });

  test('loads below one switch share its uplink; loads below two switches do not delay each other', () => {
    const arrivals = [
      [0, 0],
      [20, 1],
    ] as const;
    const shapes = [{ layers: [40] }, { layers: [40] }];
    const sharing = simulateSmall(arrivals, shapes, { gpus: smallGpus(2, 1000, 1) });
    // The first load has the switch to itself for 20 ms. Then each has half of the uplink, so the first takes 40 ms for
    // its last 20 bytes. The second has 20 bytes left by then, and the switch to itself.
    expect(ends(sharing)).toEqual([61, 81]);
    const apart = simulateSmall(arrivals, shapes, { gpus: smallGpus(2, 1000, 2) });
    expect(ends(apart)).toEqual([41, 61]);
  });

  test('a borrowed link carries the loads of both GPUs one after the other', () => {
    const observed = simulateSmall(
      [
        [0, 0],
        [0, 2],
      ],
      [{ layers: [40], lenders }, { layers: [1] }, { layers: [40], lenders }],
      { gpus: smallGpus(4, 1000) },
    );
    expect(ends(observed)).toEqual([21, 41]);
  });

  test('a load that is ordered ahead overlaps the runs in front of it', () => {
    const shapes = [{ layers: [5] }, { layers: [20], warmMs: 10 }];
    const arrivals = [
      [0, 0],
      [100, 0],
      [101, 0],
      [102, 1],
    ] as const;
    const plain = simulateSmall(arrivals, shapes);
    // One after the other: runs at 100..110 and 110..120, then 20 ms of loading and 1 ms of execution.
    expect(ends(plain)).toEqual([10, 110, 120, 141]);
    const ahead = simulateSmall(arrivals, shapes, { policy: policies.best });
    // The load goes on from 102 to 122. The execution starts at 120, overlaps the load, and ends 10 ms later.
    expect(ends(ahead)).toEqual([10, 110, 120, 130]);
    expect(ahead.outcomes[3]).toMatchObject({ queueMs: 0, placement: { residency: 'cold' } });
  });

  test('runs use a smaller plan at once, and a larger plan when its additional layers have arrived', () => {
    const variants: OfferShape = {
      plan: 'gpu',
      layers: [30, 20],
      smaller: { plan: 'memory', layers: [30], warmMs: 14 },
    };
    const arrivals = [
      [0, 0],
      // Function 1 takes part of function 0's memory. Then function 2 evicts function 1.
      [100, 1],
      [200, 0],
      [300, 2],
      // From here on memory is free, and the larger plan's additional 20 bytes have arrived at 420.
      [400, 0],
      [405, 0],
      [500, 0],
    ] as const;
    const shapes = [variants, { layers: [60] }, { layers: [15] }];
    const tight = simulateSmall(arrivals, shapes, { gpus: smallGpus(1, 100) });
    expect(ends(tight)).toEqual([51, 161, 214, 316, 414, 428, 510]);
    expect(tight.evictions).toMatchObject([{ functionIndex: 1, cause: 'capacity' }]);
    expect(tight.planChanges).toEqual([
      { atMs: 100, functionIndex: 0, direction: 'smaller' },
      { atMs: 400, functionIndex: 0, direction: 'larger' },
    ]);
    const residencies = ['cold', 'cold', 'warm', 'cold', 'warm', 'warm', 'warm'];
    expect(tight.outcomes.map(residencyOf)).toEqual(residencies);
    const roomy = simulateSmall(arrivals, shapes, { gpus: smallGpus(1, 125) });
    expect(ends(roomy)).toEqual([51, 161, 210, 316, 410, 420, 510]);
    expect(roomy.outcomes.map(residencyOf)).toEqual(residencies);
    expect(roomy.planChanges).toEqual([]);
  });

  test('on a CPU of one core an invocation starts when the one before it has ended', () => {
    const cpu = { latencyMs: 30, cores: 1 };
    const observed = simulateSmall(
      [
        [0, 0],
        [10, 0],
      ],
      [{ layers: [2000], sheet: { cpu } }],
    );
    expect(observed.outcomes.map(({ placement }) => placement.kind)).toEqual(['cpu', 'cpu']);
    expect(ends(observed)).toEqual([30, 60]);
    expect(observed.outcomes.map(({ queueMs }) => queueMs)).toEqual([0, 20]);
  });

  test('a call that arrives while its session is being made waits until the session is ready', () => {
    const cpu = { latencyMs: 30, cores: 1, loadMs: 100, bytes: 10 };
    const observed = simulateSmall(
      [
        [0, 0],
        [10, 0],
      ],
      [{ layers: [2000], sheet: { cpu } }],
      { cpu: { cores: 2, memoryBytes: 100 } },
    );
    expect(ends(observed)).toEqual([130, 130]);
  });

  test('a run whose GPU is lost starts again from the beginning on another GPU', () => {
    const observed = simulateSmall([[0, 0]], [{ layers: [40] }], {
      gpus: smallGpus(2, 1000),
      gpuChanges: [
        { atMs: 30, gpu: 0, kind: 'gpu-lost' },
        { atMs: 50, gpu: 0, kind: 'gpu-back' },
      ],
    });
    expect(observed.outcomes).toMatchObject([{ endMs: 71, placement: { gpu: 1, residency: 'cold' } }]);
    expect(observed.busyMs).toEqual([30, 41]);
  });
});

describe('traces', () => {
  const shapes = [{ layers: [40] }, { layers: [70] }, { layers: [20, 30], overlapPrefix: 1 }];
  const arrivals = Array.from({ length: 300 }, (_, index) => [index * 9, (index * 7 + (index >> 3)) % 3] as const);

  test('a trace has the same outcomes each time', () => {
    const gpus = smallGpus(2, 75, 1.5);
    for (const policy of [policies.artifact, policies.best]) {
      const first = simulateSmall(arrivals, shapes, { gpus, policy });
      const second = simulateSmall(arrivals, shapes, { gpus, policy });
      expect(second).toEqual(first);
      expect(first.outcomes).toHaveLength(300);
      expect(first.evictions.length).toBeGreaterThan(0);
    }
  });

  test('a report leaves out the invocations of the warm-up', () => {
    const gpus = smallGpus(1, 100);
    const all = simulateSmall(arrivals, shapes, { gpus });
    const builder = new ReportBuilder();
    simulateSmall(arrivals, shapes, { gpus, observer: builder }, (invocations) => builder.measured(invocations, 100));
    const report = builder.finish({ kind: 'simulated', machine: 'one GPU', seed: 1, settings: {}, functionNames: [] });
    const measured = all.outcomes.filter(({ arrivalMs }) => arrivalMs >= 900);
    expect(report).toMatchObject({
      requests: 200,
      warmup_requests: 100,
      cold_starts: measured.filter((outcome) => residencyOf(outcome) === 'cold').length,
      evictions: all.evictions.filter(({ atMs }) => atMs >= 900).length,
      max_ms: Math.max(...measured.map(({ endMs, arrivalMs }) => endMs - arrivalMs)),
    });
    expect(report.evictions).toBeLessThan(all.evictions.length);
  });

  test('a trace whose invocations are out of order is refused', () => {
    expect(() =>
      simulateSmall(
        [
          [5, 0],
          [4, 0],
        ],
        shapes,
      ),
    ).toThrow('invocation 1 arrives at 4 ms, before the one in front of it');
  });
});

test('the heap gives events by time, and events of the same time in insertion order', () => {
  fc.assert(
    fc.property(fc.array(fc.option(fc.integer({ min: 0, max: 20 }), { freq: 3 }), { maxLength: 600 }), (operations) => {
      const heap = new DueHeap(['even', 'odd']);
      const plain: { atMs: number; sequence: number; kind: string; number: number }[] = [];
      for (const [number, dueMs] of operations.entries()) {
        if (dueMs !== null) {
          const kind = number % 2 === 0 ? 'even' : 'odd';
          plain.push({ atMs: dueMs, sequence: heap.add(dueMs, kind, number), kind, number });
          continue;
        }
        plain.sort((a, b) => a.atMs - b.atMs || a.sequence - b.sequence);
        const next = plain.shift();
        const byMs = next?.atMs ?? Infinity;
        expect(heap.take(byMs - 0.5)).toBeUndefined();
        expect(heap.take(byMs)).toEqual(next);
      }
      expect(heap.size).toBe(plain.length);
    }),
  );
});

test('links carry every byte; no load is faster than its link, and the loads of a switch not faster than its uplink', () => {
  const transfer = fc.record({
    afterMs: fc.integer({ min: 0, max: 30 }),
    link: fc.nat(3),
    bytes: fc.integer({ min: 1, max: 50 }),
    msPerByte: fc.constantFrom(1, 2),
  });
  fc.assert(
    fc.property(fc.array(transfer, { maxLength: 40 }), fc.constantFrom(0.5, 1, 1.5), (transfers, uplink) => {
      const due = new Map<number, number>();
      const links = new PcieLinks<number>(smallGpus(4, 0, uplink), (link, dueMs) => due.set(link, dueMs));
      const startMs: number[] = [];
      const endMs: number[] = [];
      const complete = (untilMs: number): void => {
        for (;;) {
          const [next] = [...due].sort(([, a], [, b]) => a - b);
          if (next === undefined || next[1] > untilMs) return;
          due.delete(next[0]);
          const { load, remainingBytes } = links.complete(next[0], next[1]);
          expect(remainingBytes).toBeCloseTo(0, 6);
          endMs[load] = next[1];
        }
      };
      let nowMs = 0;
      for (const [index, { afterMs, link, bytes, msPerByte }] of transfers.entries()) {
        nowMs += afterMs;
        complete(nowMs);
        startMs[index] = nowMs;
        links.add(link, index, bytes, bytes * msPerByte, 0, nowMs);
      }
      complete(Infinity);
      for (const [index, { link, bytes, msPerByte }] of transfers.entries()) {
        // Loads of one link follow each other, each at most at the speed of the link and of the switch.
        const before = transfers.findLastIndex((other, otherIndex) => otherIndex < index && other.link === link);
        const fromMs = Math.max(startMs[index]!, before === -1 ? 0 : endMs[before]!);
        const fastestMs = bytes * Math.max(msPerByte, 1 / uplink);
        expect(endMs[index]! - fromMs).toBeGreaterThanOrEqual(fastestMs - 1e-6);
      }
      for (const switchNumber of [0, 1]) {
        const ofSwitch = [...transfers.keys()].filter((index) => transfers[index]!.link >> 1 === switchNumber);
        if (ofSwitch.length === 0) continue;
        const bytes = ofSwitch.reduce((sum, index) => sum + transfers[index]!.bytes, 0);
        const spanMs =
          Math.max(...ofSwitch.map((index) => endMs[index]!)) - Math.min(...ofSwitch.map((index) => startMs[index]!));
        expect(spanMs).toBeGreaterThanOrEqual(bytes / uplink - 1e-6);
      }
    }),
  );
});
