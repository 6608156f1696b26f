import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ranOnCpu } from '../../../test/support/ran-on-cpu.ts';
import type { InvocationRecord } from '../calls/placement.ts';
import { bucketOf, boundMs, coarseScale, fineScale, quantileMs } from './ring.ts';
import { History } from './history.ts';

const answered = (functionName: string, arrivalMs: number, latencyMs: number): InvocationRecord => ({
  key: `${functionName}@1`,
  rows: 1,
  hasRun: true,
  functionName,
  version: '1',
  arrivalMs,
  latencyMs,
  sloMs: 100,
  outcome: latencyMs <= 100 ? 'in_slo' : 'late',
  miss: latencyMs <= 100 ? undefined : { cause: 'model', lateMs: latencyMs - 100, unexplainedMs: 0 },
  ran: ranOnCpu({ inferMs: latencyMs }),
});

describe('the latency scale', () => {
  it('puts each latency into the bucket whose bounds enclose it', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(fineScale, coarseScale),
        fc.double({ min: 0.001, max: 1e5, noNaN: true }),
        (scale, ms) => {
          const bucket = bucketOf(scale, ms);
          expect(ms).toBeLessThanOrEqual(boundMs(scale, bucket) * (1 + 1e-9));
          const lowerMs = bucket === 0 ? 0 : boundMs(scale, bucket - 1) * (1 - 1e-9);
          expect(ms).toBeGreaterThan(lowerMs);
        },
      ),
    );
  });

  it('gives quantiles within one bucket of the exact ones', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0.2, max: 1e5, noNaN: true }), { minLength: 1, maxLength: 200 }),
        fc.constantFrom(0.5, 0.9, 0.99),
        (latencies, quantile) => {
          const counts = Array.from({ length: fineScale.count }, () => 0);
          for (const ms of latencies) counts[bucketOf(fineScale, ms)]!++;
          const exact = latencies.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(quantile * latencies.length) - 1)]!;
          const estimate = quantileMs(fineScale, counts, quantile)!;
          expect(estimate / exact).toBeLessThanOrEqual(fineScale.growth * (1 + 1e-9));
          expect(estimate / exact).toBeGreaterThanOrEqual(1 / fineScale.growth - 1e-9);
        },
      ),
    );
  });
});

describe('the history', () => {
  it('counts a late call under its cause, and each of the others once', () => {
    const history = new History((ms) => ms);
    const record = (more: Partial<InvocationRecord>): void => history.record({ ...answered('a', 1000, 200), ...more });
    const late = { lateMs: 100, unexplainedMs: 12.5 };
    const causes = ['queue', 'load', 'handler', 'model', 'body', 'unexplained'] as const;
    for (const cause of causes) record({ miss: { cause, ...late } });
    record({ outcome: 'shed', miss: { cause: 'shed', lateMs: 0, unexplainedMs: 0 } });
    record({ outcome: 'failed', miss: { cause: 'failed', lateMs: 50, unexplainedMs: 0 } });
    record({ outcome: undefined, miss: undefined });
    record({ outcome: 'in_slo', miss: undefined, latencyMs: 20 });
    history.refused('a', 1000);

    const counts = { queue: 1, load: 1, handler: 1, model: 1, body: 1, unexplained: 1, client: 2 };
    const span = history.span(60_000, 20_000, 'a');
    const found = history.counts(span, 'a');
    expect(found).toMatchObject({ offered: 10, in_slo: 1, late: 6, shed: 1, failed: 1, ...counts });
    expect(found).toMatchObject({ lateMs: 650, unexplainedMs: 75 });
  });

  it('lists the seconds in which something was counted since a given time', () => {
    const history = new History((ms) => ms);
    history.record(answered('a', 1_010_500, 5700));
    history.record(answered('a', 1_012_500, 100));

    expect(history.countedSince(0, 1_020_000)).toEqual([1_010_000, 1_012_000, 1_016_000]);
    // The first ended later than this, and counts as offered in the second in which it came.
    expect(history.countedSince(1_013_000, 1_016_000)).toEqual([1_010_000]);
    expect(history.countedSince(1_017_000, 1_020_000)).toEqual([]);
  });

  it('counts arrivals by their time and answers by their end', () => {
    const history = new History((ms) => ms);
    history.record(answered('a', 10_500, 1700));
    const span = history.span(60_000, 20_000);

    const columns = history.columns(span);

    const at = (ms: number): number => columns.atMs.indexOf(ms);
    expect(columns.offered[at(10_000)]).toBe(1);
    expect(columns.late[at(12_000)]).toBe(1);
    expect(columns.late[at(10_000)]).toBe(0);
    expect(columns.p99Ms[at(12_000)]).toBeGreaterThan(1500);
    expect(columns.p99Ms[at(10_000)]).toBeNull();
  });

  it('equals a plain list of records over every range, in total and for each function', () => {
    const recordArbitrary = fc.record({
      name: fc.constantFrom('a', 'b', 'c'),
      arrivalMs: fc.integer({ min: 0, max: 3_000_000 }),
      latencyMs: fc.integer({ min: 1, max: 400 }),
    });
    fc.assert(
      fc.property(
        fc.array(recordArbitrary, { maxLength: 60 }),
        fc.constantFrom(60_000, 900_000, 3_600_000, 86_400_000),
        (records, rangeMs) => {
          const history = new History((ms) => 1_700_000_000_000 + ms);
          const inOrder = records.toSorted(
            (one, other) => one.arrivalMs + one.latencyMs - other.arrivalMs - other.latencyMs,
          );
          for (const { name, arrivalMs, latencyMs } of inOrder) history.record(answered(name, arrivalMs, latencyMs));
          const nowMs = 1_700_000_000_000 + 3_000_500;
          for (const name of [undefined, 'a', 'b', 'c']) {
            const span = history.span(rangeMs, nowMs, name);
            const totals = history.totals(span, name);
            const ended = inOrder.filter((record) => {
              const endMs = 1_700_000_000_000 + record.arrivalMs + record.latencyMs;
              return (name === undefined || record.name === name) && endMs >= span.fromMs && endMs < span.toMs;
            });
            expect(totals.in_slo).toBe(ended.filter(({ latencyMs }) => latencyMs <= 100).length);
            expect(totals.late).toBe(ended.filter(({ latencyMs }) => latencyMs > 100).length);
            expect(totals.cpu).toBe(ended.length);
            const columns = history.columns(span, name);
            expect(columns.in_slo.reduce((sum, count) => sum + count, 0)).toBe(totals.in_slo);
          }
        },
      ),
      { numRuns: 60 },
    );
  });

  it('keeps no step longer than its ring', () => {
    const history = new History((ms) => ms);
    history.record(answered('a', 1000, 10));
    const aDayLater = 1000 + 26 * 3_600_000;
    history.record(answered('a', aDayLater, 10));

    const totals = history.totals(history.span(86_400_000, aDayLater));

    expect(totals.in_slo).toBe(1);
  });

  it('counts every call after its clock was set, back or forward, and once', () => {
    const minuteMs = 60_000;
    const jump = fc.oneof(
      fc.constant(0),
      fc.integer({ min: 2, max: 70 }).map((minutes) => -minutes * minuteMs),
      fc.integer({ min: 1, max: 400 }).map((days) => -days * 1440 * minuteMs),
      fc.integer({ min: 1, max: 400 * 1440 }).map((minutes) => minutes * minuteMs),
    );
    const burst = fc.record({
      jump,
      calls: fc.integer({ min: 1, max: 400 }),
      // Every step begins with a call, so that none is dropped in part.
      everyMs: fc.constantFrom(10_000, 20_000, 30_000),
    });
    fc.assert(
      fc.property(fc.array(burst, { minLength: 1, maxLength: 6 }), (bursts) => {
        let nowMs = 1_700_000_000_000;
        let counted: number[] = [];
        const history = new History(() => nowMs);
        for (const { jump: byMs, calls, everyMs } of bursts) {
          nowMs += byMs;
          const since: number[] = [];
          for (let call = 0; call < calls; call++) {
            nowMs += everyMs;
            history.record(answered('a', 0, 0));
            history.errors.add({ status: 400, code: 'bad-request', message: '' }, nowMs);
            since.push(nowMs);
          }
          counted = [...counted.filter((atMs) => atMs <= since[0]!), ...since];
          for (const name of [undefined, 'a']) {
            const span = history.span(10 * minuteMs, nowMs, name);
            const within = (list: number[]): number =>
              list.filter((atMs) => atMs >= span.fromMs && atMs < span.toMs).length;
            const { offered, in_slo: answers } = history.totals(span, name);
            expect(offered).toBe(answers);
            // What came before the clock was set counts as far as its steps were not reused meanwhile.
            expect(offered).toBeGreaterThanOrEqual(within(since));
            expect(offered).toBeLessThanOrEqual(within(counted));
          }
          const errors = history.errors.causes(history.span(10 * minuteMs, nowMs))[0]?.count;
          expect(errors).toBeGreaterThanOrEqual(history.totals(history.span(10 * minuteMs, nowMs)).offered);
        }
      }),
      { numRuns: 30 },
    );
  });

  it('reports an SLO breach at once, then at most once a second with the number of late answers', () => {
    const history = new History((ms) => ms);
    for (let index = 0; index < 50; index++) history.record(answered('a', 1000 + index * 10, 200));
    history.record(answered('a', 2500, 200));

    const breaches = history.eventLog.of('a').filter(({ kind }) => kind === 'slo-breach');

    expect(breaches).toEqual([
      { kind: 'slo-breach', functionName: 'a', late: 1, sloMs: 100, atMs: 1200 },
      { kind: 'slo-breach', functionName: 'a', late: 50, sloMs: 100, atMs: 2700 },
    ]);
  });

  it('splits the mean answer of each step into parts that add up to its latency', () => {
    const history = new History((ms) => ms);
    const times = { queueMs: 10, loadMs: 20, preprocessMs: 2, inferMs: 40, postprocessMs: 3 };
    history.record({ ...answered('a', 1000, 100), ran: ranOnCpu(times) });
    history.record(answered('a', 2000, 50));

    const means = history.meanParts(history.span(60_000, 3000, 'a'), 'a');

    expect(Object.fromEntries(Object.entries(means).map(([name, steps]) => [name, steps.at(-1)]))).toEqual({
      partQueue: 5,
      partLoad: 10,
      partHandler: 2.5,
      partModel: 45,
      partHost: 12.5,
    });
    expect(means.partQueue.slice(0, -1).every((ms) => ms === 0)).toBe(true);
  });

  it('keeps an hour of comparisons between predicted and observed latency', () => {
    const history = new History((ms) => ms);
    for (let window = 0; window < 400; window++) history.predicted('a', window, window + 1, window * 10_000);

    const points = history.predictions('a');

    expect(points).toHaveLength(360);
    expect(points.at(-1)).toEqual({ atMs: 3_990_000, predictedMs: 399, observedMs: 400 });
    history.forget('a');
    expect(history.predictions('a')).toEqual([]);
  });
});
