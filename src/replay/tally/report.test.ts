import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Outcome, OutcomePlacement } from '../types.ts';
import { ReportBuilder, type ReportContext } from './builder.ts';
import { IntervalSeries } from './series.ts';
import { Sketch } from './sketch.ts';

const value = fc.oneof(fc.constant(0), fc.double({ min: 1e-5, max: 1e7, noNaN: true }), fc.nat(20));
const quantile = fc.constantFrom(0, 0.01, 0.5, 0.95, 0.99, 0.999, 1);

/** Values under a millionth share a bucket with it. */
const smallestBucket = 2e-6;

/** The nearest rank, by its definition. */
function nearestRank(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  let rank = 1;
  while (rank < sorted.length && rank < share * sorted.length - 1e-9) rank++;
  return sorted[rank - 1]!;
}

describe('a sketch', () => {
  it('a sketch of few values gives the percentiles of a plain sort', () => {
    fc.assert(
      fc.property(fc.array(value, { minLength: 1, maxLength: 50 }), quantile, (values, share) => {
        const sketch = new Sketch({ exactMax: 50, precisionBits: 7 });
        for (const each of values) sketch.record(each);
        expect(sketch.quantile(share)).toBe(nearestRank(values, share));
        expect(sketch.error).toBe(0);
      }),
    );
  });

  it('a sketch of many values is off by at most its stated error', () => {
    fc.assert(
      fc.property(
        fc.array(value, { minLength: 9, maxLength: 300 }),
        quantile,
        fc.integer({ min: 2, max: 12 }),
        (values, share, precisionBits) => {
          const sketch = new Sketch({ exactMax: 8, precisionBits });
          for (const each of values) sketch.record(each);
          const exact = nearestRank(values, share);
          expect(sketch.error).toBe(2 ** -(precisionBits + 1));
          expect(Math.abs(sketch.quantile(share) - exact)).toBeLessThanOrEqual(
            exact * sketch.error * 1.000001 + smallestBucket,
          );
          expect(sketch.max).toBe(Math.max(...values));
          expect(sketch.count).toBe(values.length);
        },
      ),
    );
  });

  it('merged of parts is the sketch of the whole', () => {
    const parts = fc.array(fc.array(value, { maxLength: 40 }), { minLength: 1, maxLength: 6 });
    fc.assert(
      fc.property(parts, quantile, (lists, share) => {
        const values = lists.flat();
        fc.pre(values.length > 0);
        const merged = new Sketch({ exactMax: 16, precisionBits: 8 });
        for (const list of lists) {
          const part = new Sketch({ exactMax: 16, precisionBits: 8 });
          for (const each of list) part.record(each);
          merged.merge(part);
        }
        const exact = nearestRank(values, share);
        expect(merged.count).toBe(values.length);
        const sum = values.reduce((total, each) => total + each, 0);
        expect(merged.mean * values.length).toBeCloseTo(sum, 3);
        expect(Math.abs(merged.quantile(share) - exact)).toBeLessThanOrEqual(
          exact * 2 ** -9 * 1.000001 + smallestBucket,
        );
      }),
    );
  });

  it('a sketch of nothing has no percentile', () => {
    expect(new Sketch({ exactMax: 4, precisionBits: 4 }).quantile(0.5)).toBeNaN();
  });
});

describe('a series of intervals', () => {
  it('a series of intervals keeps every count, however long the trace, in a bounded number of rows', () => {
    const instants = fc.array(fc.integer({ min: 0, max: 40 * 24 * 3600 * 1000 }), { minLength: 1, maxLength: 60 });
    fc.assert(
      fc.property(instants, (all) => {
        const series = new IntervalSeries();
        for (const atMs of all) series.at(atMs).tally.requests++;
        expect(series.rows.length).toBeLessThanOrEqual(2880);
        const counts = series.rows.map(({ tally }) => tally.requests);
        const expected = counts.map(() => 0);
        for (const atMs of all) expected[Math.floor(atMs / series.widthMs)]!++;
        expect(counts).toEqual(expected);
      }),
      { numRuns: 30 },
    );
  });

  it('a series of intervals splits what a GPU executes over the intervals that it lies in', () => {
    const series = new IntervalSeries();
    series.busy(1, 500, 3250);
    expect(series.rows.map(({ busyMs }) => busyMs)).toEqual([
      [0, 500],
      [0, 1000],
      [0, 1000],
      [0, 250],
    ]);
  });
});

const context: ReportContext = {
  kind: 'simulated',
  machine: 'test',
  seed: 7,
  settings: { plan: 'dha' },
  functionNames: ['a/0', 'a/1', 'b/0'],
  modelOf: (index) => (index < 2 ? 'a' : 'b'),
};

const placement: fc.Arbitrary<OutcomePlacement> = fc.oneof(
  fc.record({
    kind: fc.constant('gpu' as const),
    gpu: fc.nat(3),
    residency: fc.constantFrom('warm' as const, 'partial' as const, 'cold' as const),
  }),
  fc.record({ kind: fc.constant('cpu' as const), coldStart: fc.boolean() }),
  fc.constant({ kind: 'shed' as const }),
  fc.record({ kind: fc.constant('failed' as const), reason: fc.constantFrom('died', 'HTTP 500') }),
);
const outcome: fc.Arbitrary<Outcome> = fc
  .record({
    functionIndex: fc.nat(2),
    arrivalMs: fc.double({ min: 0, max: 200_000, noNaN: true }),
    tookMs: fc.double({ min: 0, max: 500, noNaN: true }),
    placement,
  })
  .map(({ functionIndex, arrivalMs, tookMs, placement: placed }) => {
    const endMs = arrivalMs + tookMs;
    return { sequence: 0, functionIndex, arrivalMs, placement: placed, endMs, queueMs: 0, sloMs: 100 };
  });

const coldStart = (arrivalMs: number, endMs: number): Outcome => ({
  sequence: 0,
  functionIndex: 0,
  arrivalMs,
  endMs,
  queueMs: 0,
  sloMs: 100,
  placement: { kind: 'gpu', gpu: 0, residency: 'cold' },
});

describe('a report', () => {
  it('a report counts each invocation once, in the whole, its minute, its function and its model', () => {
    fc.assert(
      fc.property(fc.array(outcome, { minLength: 1, maxLength: 100 }), (outcomes) => {
        const builder = new ReportBuilder();
        for (const each of outcomes) builder.outcome(each);
        const report = builder.finish(context);
        const answered = outcomes.filter(({ placement: { kind } }) => kind === 'gpu' || kind === 'cpu');
        const latencies = answered.map(({ arrivalMs, endMs }) => endMs - arrivalMs);
        const inSlo = latencies.filter((ms) => ms <= 100).length;
        expect(report.requests).toBe(outcomes.length);
        expect(report.goodput).toBeCloseTo(inSlo / outcomes.length, 5);
        expect(report.p99_ms ?? -1).toBeCloseTo(latencies.length === 0 ? -1 : nearestRank(latencies, 0.99), 5);
        expect(report.requests).toBe(answered.length + report.shed + report.failed);
        expect(report.failed).toBe(Object.values(report.failures_by_reason).reduce((sum, count) => sum + count, 0));
        for (const rows of [report.per_minute, report.timeline, report.functions, report.models]) {
          if (rows.length === 0) continue;
          for (const field of ['requests', 'cold_starts', 'partial_starts', 'shed', 'offloaded', 'failed'] as const) {
            expect([field, rows.reduce((sum, row) => sum + row[field], 0)]).toEqual([field, report[field]]);
          }
        }
        expect(report.gpus.reduce((sum, gpu) => sum + gpu.requests, 0)).toBe(
          outcomes.filter((each) => each.placement.kind === 'gpu').length,
        );
      }),
    );
  });

  it('a report leaves the warm-up out of everything but its own count', () => {
    const builder = new ReportBuilder({ fromMs: Infinity });
    builder.outcome(coldStart(0, 10));
    builder.busy(0, 0, 10);
    builder.eviction({ atMs: 5, from: 0, functionIndex: 1, bytes: 8, cause: 'capacity' });
    builder.planChange({ atMs: 5, functionIndex: 1, direction: 'smaller' });
    builder.measureFrom(1000);
    builder.outcome(coldStart(900, 1100));
    builder.busy(0, 900, 1100);
    builder.outcome(coldStart(1000, 1250));
    builder.busy(0, 1100, 1200);
    builder.eviction({ atMs: 1100, from: 0, functionIndex: 1, bytes: 8, cause: 'trim' });
    builder.planChange({ atMs: 1100, functionIndex: 1, direction: 'smaller' });
    builder.planChange({ atMs: 1200, functionIndex: 1, direction: 'larger' });
    const report = builder.finish({ ...context, gpuCount: 2 });
    expect(report).toMatchObject({
      requests: 1,
      warmup_requests: 2,
      p99_ms: 250,
      goodput: 0,
      cold_start_rate: 1,
      duration_s: 0.25,
      evictions: 1,
      evictions_by_cause: { trim: 1 },
      plan_changes: { smaller: 1, larger: 1 },
      gpus: [
        { gpu: 0, requests: 1, cold_starts: 1, evictions: 1, utilisation: 0.8 },
        { gpu: 1, requests: 0, cold_starts: 0, evictions: 0, utilisation: 0 },
      ],
      seed: 7,
      simulated: true,
      settings: { plan: 'dha' },
    });
    expect(report.per_minute).toHaveLength(1);
  });

  it('a report of a measured replay does not say from which GPU functions were evicted', () => {
    const builder = new ReportBuilder();
    builder.outcome(coldStart(0, 10));
    builder.eviction({ atMs: 5, from: undefined, functionIndex: 1, bytes: 0, cause: 'gpu capacity' });
    const report = builder.finish({ ...context, kind: 'measured', gpuCount: 1 });
    expect(report).toMatchObject({ evictions: 1, gpus: [{ requests: 1, cold_starts: 1, evictions: null }] });
  });

  it('a report without answers has no percentile and no rate, and says so', () => {
    const report = new ReportBuilder().finish({ ...context, kind: 'measured' });
    expect(report).toMatchObject({ requests: 0, p99_ms: null, goodput: null, cold_start_rate: null, measured: true });
    expect(report.simulated).toBeUndefined();
  });

  it('a report takes the same size, whatever the length of the trace', () => {
    const sizes = [50_000, 500_000].map((count) => {
      const builder = new ReportBuilder();
      for (let index = 0; index < count; index++) {
        const arrivalMs = index * (200_000_000 / 50_000);
        const placed = { kind: 'gpu', gpu: index % 4, residency: 'warm' } as const;
        const endMs = arrivalMs + 5 + (index % 97);
        const functionIndex = index % 3;
        builder.outcome({ sequence: index, functionIndex, arrivalMs, endMs, queueMs: 1, sloMs: 50, placement: placed });
      }
      return builder.finish(context).per_minute.length;
    });
    for (const rows of sizes) expect(rows).toBeLessThanOrEqual(2880);
  });
});
