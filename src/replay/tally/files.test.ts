/** What becomes of a report in files: CSV, and JSON that is read back. */
import { describe, expect, it } from 'vitest';
import { renderReportCsv, renderSweepCsv, summaryOf, type Report, type SweepReport } from '../../report/index.ts';
import { ReportBuilder } from './builder.ts';
import { parseReport } from './read.ts';

function reportOf(): Report {
  const requests = 400;
  const builder = new ReportBuilder();
  for (let index = 0; index < requests; index++) {
    const arrivalMs = index * 500;
    const residency = index % 10 === 0 ? 'cold' : index % 4 === 0 ? 'partial' : 'warm';
    const endMs = arrivalMs + (residency === 'cold' ? 140 : 9);
    const placement =
      index % 50 === 49 ? ({ kind: 'shed' } as const) : ({ kind: 'gpu', gpu: index % 2, residency } as const);
    builder.outcome({ sequence: index, functionIndex: index % 3, arrivalMs, endMs, queueMs: 1, sloMs: 100, placement });
    builder.busy(index % 2, arrivalMs, endMs);
    if (residency === 'cold') {
      builder.eviction({ atMs: arrivalMs, from: index % 2, functionIndex: 1, bytes: 1, cause: 'capacity' });
    }
  }
  return builder.finish({
    kind: 'simulated',
    machine: 'p3.8xlarge',
    seed: 1,
    settings: { plan: 'dha', slo_ms: 100, note: '</script><b>&"' },
    functionNames: ['a/0', 'a/1', '<img src=x onerror=alert(1)>'],
    modelOf: (index) => (index < 2 ? 'a' : 'b, "quoted"'),
  });
}

const simulated = reportOf();
const sweep: SweepReport = {
  format: 'turntable-sweep',
  version: 2,
  simulated: true,
  verdict: '',
  machine: 'p3.8xlarge',
  seed: 1,
  over: 'functions',
  slo_ms: 100,
  settings: {},
  runs: [100, 120].flatMap((instances) =>
    ['pipeswitch', 'dha'].map((system) => ({ at: instances, system, report: summaryOf(simulated) })),
  ),
};

describe('CSV', () => {
  it('CSV has a row for the whole, each GPU, model, minute and function, all of one width', () => {
    const rows = renderReportCsv(simulated).trimEnd().split('\n');
    const scopes = rows.slice(1).map((row) => row.split(',')[0]);
    expect(scopes).toEqual([
      'total',
      'gpu',
      'gpu',
      'model',
      'model',
      ...simulated.per_minute.map(() => 'interval'),
      'function',
      'function',
      'function',
    ]);
    expect(rows.find((row) => row.startsWith('model,"'))).toContain('"b, ""quoted"""');
    const widths = rows.map((row) => row.replaceAll(/"(?:[^"]|"")*"/g, 'quoted').split(',').length);
    expect(new Set(widths).size).toBe(1);
  });

  it('CSV of a sweep has a row for each run', () => {
    expect(renderSweepCsv(sweep).trimEnd().split('\n')).toHaveLength(5);
  });
});

describe('a report in a file', () => {
  it('a report in a file comes back as it was', () => {
    expect(parseReport(JSON.stringify(simulated), 'a.json')).toEqual(simulated);
  });

  it.each([
    ['nothing', 'a.json is not JSON'],
    ['[1]', 'a.json is no report: its "format" is not "turntable-report"'],
    ['null', 'a.json is no report: not a JSON object'],
    ['{"format":"turntable-sweep"}', 'a.json is the report of a sweep'],
    ['{"format":"turntable-report","version":9}', 'a.json has version 9'],
    [
      JSON.stringify({ ...simulated, p99_ms: 'fast' }),
      `field 'p99_ms' of the report is "fast", but must be a number or null`,
    ],
    [JSON.stringify({ ...simulated, per_minute: undefined }), "the report has no field 'per_minute'"],
    [JSON.stringify({ ...simulated, measured: true }), 'either "simulated" or "measured"'],
  ])('a report in a file is refused where it is none or damaged: %.40s', (text, message) => {
    expect(() => parseReport(text, 'a.json')).toThrow(message);
  });
});
