/** The parts of a report beside its tallies: predictions, SLOs, host memory. */
import { expect, test } from 'vitest';
import { notesOf, type Report } from '../../report/index.ts';
import type { Outcome } from '../types.ts';
import { ReportBuilder, type ReportContext } from './builder.ts';

const context: ReportContext = {
  kind: 'simulated',
  machine: 'p3.8xlarge',
  seed: 1,
  settings: {},
  functionNames: ['a', 'b'],
};

const warm: Outcome = {
  sequence: 0,
  functionIndex: 0,
  arrivalMs: 100,
  endMs: 110,
  queueMs: 0,
  sloMs: 100,
  placement: { kind: 'gpu', gpu: 0, residency: 'warm' },
};

function reportOf(outcomes: readonly Outcome[], more: Partial<ReportContext> = {}): Report {
  const builder = new ReportBuilder();
  for (const outcome of outcomes) builder.outcome(outcome);
  return builder.finish({ ...context, ...more });
}

test('the error of predictions is reported by placement, late and early alike', () => {
  const cold = { ...warm, placement: { kind: 'gpu', gpu: 0, residency: 'cold' } as const };
  const report = reportOf([
    { ...warm, predictedEndMs: 110 },
    { ...warm, predictedEndMs: 106 },
    { ...cold, endMs: 140, predictedEndMs: 150 },
    { ...warm, placement: { kind: 'worker' }, endMs: 120, predictedEndMs: 110 },
    // Not predicted, and not answered.
    cold,
    { ...warm, placement: { kind: 'shed' }, predictedEndMs: 500 },
  ]);
  expect(report.predictions).toEqual([
    { placement: 'gpu warm', requests: 2, error_mean_ms: 2, error_mean_share: 0.2, error_p90_share: 0.4 },
    { placement: 'gpu cold', requests: 1, error_mean_ms: 10, error_mean_share: 0.25, error_p90_share: 0.25 },
    { placement: 'worker', requests: 1, error_mean_ms: 10, error_mean_share: 0.5, error_p90_share: 0.5 },
  ]);
  expect(report.workers).toBe(1);
});

test('SLOs are listed apart if there is more than one, the tightest first', () => {
  const late = { ...warm, sloMs: 5 };
  const shed = { ...warm, sloMs: 5, placement: { kind: 'shed' } as const };
  expect(reportOf([warm, late, warm, shed]).slos).toEqual([
    { slo_ms: 5, requests: 2, goodput: 0, shed: 1 },
    { slo_ms: 100, requests: 2, goodput: 1, shed: 0 },
  ]);
  expect(reportOf([warm, warm]).slos).toEqual([]);
});

test('more SLOs than a report can list are left out', () => {
  const many = Array.from({ length: 40 }, (_, index) => ({ ...warm, sloMs: index + 1 }));
  expect(reportOf(many).slos).toEqual([]);
});

test('host memory that the functions exceed is reported, with the bytes read from disk', () => {
  const builder = new ReportBuilder();
  builder.outcome(warm);
  builder.stage({ atMs: 100, functionIndex: 0, bytes: 400 });
  builder.stage({ atMs: 100, functionIndex: 1, bytes: 500 });
  builder.eviction({ atMs: 100, from: 'host', functionIndex: 0, bytes: 400, cause: 'capacity' });
  builder.eviction({ atMs: 100, from: 0, functionIndex: 0, bytes: 400, cause: 'host' });
  const report = builder.finish({ ...context, hostMemory: { capacityBytes: 600, functionsBytes: 900 } });
  expect(report.host_memory).toEqual({
    capacity_bytes: 600,
    functions_bytes: 900,
    disk_capacity_bytes: null,
    exceeded: true,
    disk_reads: 2,
    disk_read_bytes: 900,
    evictions: 1,
  });
  expect(notesOf(report).join()).toContain('host memory is exceeded: the functions have 900 B');
  expect(reportOf([warm]).host_memory).toBeUndefined();
});
