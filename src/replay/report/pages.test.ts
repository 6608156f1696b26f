import { describe, expect, it } from 'vitest';
import { linearScale, renderChart } from './chart.ts';
import { renderReportCsv, renderSweepCsv } from './csv.ts';
import { renderReportPage, renderSweepPage } from './html.ts';
import { ReportBuilder } from './builder.ts';
import { parseReport } from './read.ts';
import type { Report, SweepReport } from './types.ts';

function reportOf(kind: 'simulated' | 'measured', requests = 400): Report {
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
      builder.eviction({ atMs: arrivalMs, gpu: index % 2, functionIndex: 1, bytes: 1, cause: 'capacity' });
    }
  }
  return builder.finish({
    kind,
    machine: 'p3.8xlarge',
    seed: 1,
    settings: { plan: 'dha', slo_ms: 100, note: '</script><b>&"' },
    functionNames: ['a/0', 'a/1', '<img src=x onerror=alert(1)>'],
    modelOf: (index) => (index < 2 ? 'a' : 'b, "quoted"'),
  });
}

const simulated = reportOf('simulated');
const measured = reportOf('measured', 100);
const { functions: _functions, timeline: _timeline, per_minute: _perMinute, ...figures } = simulated;
const sweep: SweepReport = {
  format: 'turntable-sweep',
  version: 1,
  simulated: true,
  machine: 'p3.8xlarge',
  seed: 1,
  slo_ms: 100,
  settings: {},
  runs: [100, 120].flatMap((instances) =>
    ['pipeswitch', 'dha'].map((plan) => ({ instances, plan, policy: 'artifact', report: figures })),
  ),
};

const pages = {
  'of one report': renderReportPage([{ name: 'one', report: simulated }]),
  'of several': renderReportPage([
    { name: 'one <b>', report: simulated },
    { name: 'two', report: measured },
  ]),
  'of a sweep': renderSweepPage(sweep),
};

describe.each(Object.entries(pages))('the page %s', (_, page) => {
  it('refers to nothing outside itself', () => {
    expect(page).not.toMatch(/https?:|\/\/[a-z]/i);
    expect(page).not.toMatch(/<(?:link|iframe|img|object|embed|base)\b/i);
    // Attributes of real tags; text is escaped.
    expect(page).not.toMatch(/<[a-z][^>]*\s(?:src|href|action|srcset|poster)\s*=/i);
    expect(page).not.toMatch(/@import|url\(/i);
  });

  it('has one script, one style, and plots that need no script', () => {
    expect(page.match(/<script\b/g)).toHaveLength(1);
    expect(page.match(/<\/script>/g)).toHaveLength(1);
    expect(page.match(/<style\b/g)).toHaveLength(1);
    expect((page.match(/<path class="line /g) ?? []).length).toBeGreaterThanOrEqual(4);
    expect(page).not.toMatch(/NaN|undefined|Infinity/);
  });

  it('says how its figures were obtained', () => {
    expect(page).toContain('simulated, machine preset p3.8xlarge');
  });
});

describe('the page of a report', () => {
  it('has the figures and the plots of the papers', () => {
    const page = pages['of one report'];
    for (const title of ['Offered load', '99% latency (SLO 100 ms)', 'Goodput', 'Cold starts', 'Evictions']) {
      expect(page).toContain(`<figcaption>${title}</figcaption>`);
    }
    expect(page).toContain('&lt;img src=x onerror=alert(1)&gt;');
    expect(page).toContain('&lt;/script&gt;&lt;b&gt;&amp;&quot;');
  });
});

describe('a chart', () => {
  it('has ticks at 1, 2 or 5 times a power of ten, within its range', () => {
    expect(linearScale(0, 180, 8).ticks).toEqual([0, 50, 100, 150]);
    expect(linearScale(0, 1, 5).ticks).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(linearScale(20, 240, 8).ticks).toEqual([50, 100, 150, 200]);
  });

  it('leaves a gap where there is no value, and marks one that stands alone', () => {
    const svg = renderChart({
      title: 't',
      xLabel: 'x',
      yLabel: 'y',
      series: [
        {
          name: '',
          points: [
            [0, 1],
            [1, null],
            [2, 3],
            [3, null],
          ],
        },
      ],
    });
    expect(/class="line s0" d="([^"]*)"/.exec(svg)?.[1]?.match(/M/g)).toHaveLength(2);
    expect(svg.match(/<circle/g)).toHaveLength(2);
  });

  it('of nothing says so', () => {
    expect(renderChart({ title: 't', xLabel: 'x', yLabel: 'y', series: [] })).toContain('Nothing to show');
  });
});

describe('CSV', () => {
  it('has a row for the whole, each GPU, model, minute and function, all of one width', () => {
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

  it('of a sweep has a row for each run', () => {
    expect(renderSweepCsv(sweep).trimEnd().split('\n')).toHaveLength(5);
  });
});

describe('a report in a file', () => {
  it('comes back as it was', () => {
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
  ])('is refused where it is none or damaged: %.40s', (text, message) => {
    expect(() => parseReport(text, 'a.json')).toThrow(message);
  });
});
