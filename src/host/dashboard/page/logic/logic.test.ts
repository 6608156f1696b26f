import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { FleetHostAnswer } from '../../../http/fleet-routes.ts';
import type { EventAnswer, FunctionRow, HistoryAnswer, TickEvent, TrafficColumns } from '../../api-types.ts';
import { mergedBars } from './merged-bars.ts';
import { curlOf, zerosFor } from './curl.ts';
import { errorNote, errorSums, isFlood } from './errors.ts';
import { fleetHeadline, hostNote, hostPage, placesOf, sortHosts } from './fleet.ts';
import { formatAgo, formatMs, formatRate, formatShare } from './format.ts';
import { filterRows, nextSort, sortRows, type SortKey } from './function-table.ts';
import { foldEvents, groupName, recordedOf } from './events.ts';
import { idleness, isFull, memoryBlocks } from './memory-map.ts';
import { bestOf, parseReport, shareRange, shareWithin } from './reports.ts';
import { functionLink, routeOf } from './route.ts';
import { coarser, goodputShare, perSecond, stacked, withTick, zoomed } from './series.ts';
import { alone, latestOf } from './points.ts';
import { causesText, headline, refusedText, saidOnce, spanText } from './trouble.ts';

const event = (atMs: number, kind: EventAnswer['kind'], functionName: string | null, level: 'info' | 'warning') => ({
  atMs,
  kind,
  functionName,
  level,
  text: `${kind} at ${atMs}`,
});

describe('recent events', () => {
  const seen = [
    event(9000, 'slo-breach', 'a', 'warning'),
    event(8000, 'cold-start', 'b', 'info'),
    event(7000, 'slo-breach', 'a', 'warning'),
    event(6000, 'slo-breach', 'b', 'warning'),
    event(5900, 'cold-start', 'b', 'warning'),
    event(5000, 'cold-start', 'a', 'info'),
    event(4000, 'eviction', 'b', 'info'),
  ];

  it('recent events have warnings first, once for each function, then routine by kind', () => {
    const { worries, routine } = foldEvents(seen);
    expect(worries.map(({ latest, count, sinceMs }) => [latest.functionName, latest.atMs, count, sinceMs])).toEqual([
      ['a', 9000, 2, 7000],
      ['b', 5900, 2, 5900],
    ]);
    expect(routine.map(groupName)).toEqual(['2 cold starts of 2 functions', '1 eviction of 1 function']);
    expect(foldEvents([])).toEqual({ worries: [], routine: [] });
  });

  it('link to the recorded cold start', () => {
    const recorded = [
      { id: 3, functionName: 'b', atMs: 8100 },
      { id: 2, functionName: 'b', atMs: 7900 + 500 },
      { id: 1, functionName: 'a', atMs: 8000 },
    ];
    expect(recordedOf(seen[1]!, recorded)?.id).toBe(3);
    expect(recordedOf({ ...seen[1]!, atMs: 20_000 }, recorded)).toBeUndefined();
    expect(recordedOf(seen[0]!, [{ functionName: 'a', atMs: 9000 }])).toBeUndefined();
  });
});

const host = (name: string, state: FleetHostAnswer['state'], more: Partial<FleetHostAnswer> = {}) =>
  ({ name, state, url: `http://${name}`, self: false, ...more }) as FleetHostAnswer;

describe('a fleet', () => {
  const hosts = [
    host('10.0.0.10:8000', 'up', { self: true }),
    host('10.0.0.9:8000', 'up'),
    host('10.0.0.7:8000', 'draining'),
    host('10.0.0.8:8000', 'sick', { reason: 'no answer for 2 s' }),
  ];

  it('a fleet has hosts that need attention first, then all by name', () => {
    expect(sortHosts(hosts).map(({ name }) => name)).toEqual([
      '10.0.0.8:8000',
      '10.0.0.7:8000',
      '10.0.0.9:8000',
      '10.0.0.10:8000',
    ]);
  });

  it('a fleet says how many hosts are sick or draining, and why one is', () => {
    const say = (count: number): string => fleetHeadline({ fleet: 'lab', hosts: hosts.slice(0, count) });
    expect([1, 2, 3, 4].map(say)).toEqual([
      'lab: 1 host up',
      'lab: 2 hosts up',
      'lab: 1 of 3 hosts drains',
      'lab: 1 of 4 hosts is sick, 1 drains',
    ]);
    expect(fleetHeadline({ fleet: 'lab', hosts: [...hosts, hosts[3]!] })).toBe('lab: 2 of 5 hosts are sick, 1 drains');
    expect(hosts.map((each) => hostNote(each))).toEqual([
      'this page is of it',
      '',
      'takes no calls of other hosts',
      'no answer for 2 s',
    ]);
    expect(hostNote(host('a', 'draining', { self: true }))).toBe('this page is of it; takes no calls of other hosts');
  });

  it("links to another host's page if the browser can open it", () => {
    expect(hostPage(hosts[1]!)).toBe('http://10.0.0.9:8000/#/fleet');
    expect(hostPage(host('a', 'up', { url: 'https://a/' }))).toBe('https://a/#/fleet');
    expect(hostPage(host('a', 'up', { url: 'javascript:alert(1)' }))).toBeUndefined();
  });

  it('a fleet has the homes of a function in order, then other hosts that have its content', () => {
    const holders = [
      { host: 'c', predicted_ms: null },
      { host: 'b', predicted_ms: 7 },
    ];
    expect(placesOf({ homes: ['a', 'b'], holders })).toEqual([
      { host: 'a', home: 1, hasContent: false, predictedMs: null },
      { host: 'b', home: 2, hasContent: true, predictedMs: 7 },
      { host: 'c', home: undefined, hasContent: true, predictedMs: null },
    ]);
  });
});

const cause = (status: number, count: number) => ({ status, count, code: '', when: '', lastMs: 0 });

describe('errors', () => {
  it('errors are summed for callers and for the host', () => {
    const sums = errorSums({ causes: [cause(400, 1200), cause(404, 4), cause(499, 1), cause(500, 2), cause(503, 31)] });
    expect(sums).toEqual({ client: 1205, host: 33 });
    expect(errorNote(sums)).toBe('1,205 of callers (4xx), 33 of the host (5xx)');
    expect(errorNote({ client: 0, host: 0 })).toBe('no request was refused or failed');
  });

  it("errors are a flood if any is the host's, or if callers are refused more than once in twenty calls", () => {
    expect(isFlood({ client: 0, host: 1 }, 1e6)).toBe(true);
    expect(isFlood({ client: 5, host: 0 }, 95)).toBe(false);
    expect(isFlood({ client: 6, host: 0 }, 94)).toBe(true);
    expect(isFlood({ client: 0, host: 0 }, 0)).toBe(false);
  });
});

describe('formats', () => {
  it.each([
    [formatMs(0), '0 ms'],
    [formatMs(null), '–'],
    [formatShare(1), '100%'],
    [formatShare(0.99999), '99.9%'],
    [formatShare(0.5), '50.0%'],
    [formatShare(0.00001), '<0.01%'],
    [formatShare(0), '0%'],
    [formatShare(null), '–'],
    [formatRate(0), '0/s'],
    [formatRate(0.05), '3.0/min'],
    [formatRate(3.21), '3.2/s'],
    [formatRate(123.4), '123/s'],
    [formatAgo(0, 5000), 'never'],
    [formatAgo(1000, 2000), 'now'],
    [formatAgo(1000, 91_000), '2 min ago'],
  ])('formats show %s', (shown, expected) => {
    expect(shown).toBe(expected);
  });

  it('formats never show a share below 1 as 100%', () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }), (share) => {
        expect(formatShare(share)).not.toMatch(/^100/);
      }),
    );
  });
});

const names = ['offered', 'in_slo', 'late', 'shed', 'failed', 'cold', 'gpuWarm', 'gpuCold', 'cpu', 'remote'] as const;

function history(atMs: readonly number[], stepMs = 1000): HistoryAnswer {
  const columns = {
    atMs,
    p50Ms: atMs.map(() => null),
    p99Ms: atMs.map(() => null),
    ...Object.fromEntries(names.map((name) => [name, atMs.map(() => 0)])),
  } as unknown as TrafficColumns;
  const totals = {
    p50Ms: 1,
    p99Ms: 2,
    ...Object.fromEntries(names.map((name) => [name, 0])),
  } as HistoryAnswer['totals'];
  return { stepMs, fromMs: atMs[0]!, toMs: atMs.at(-1)! + stepMs, sinceMs: atMs[0]!, columns, totals };
}

const tick = (atMs: number): TickEvent => ({
  ...(Object.fromEntries(names.map((name) => [name, 0])) as unknown as TickEvent),
  atMs,
  earlier: [],
  in_slo: 7,
  offered: 8,
  p50Ms: 3,
  p99Ms: 4,
  waiting: 0,
  inFlight: 0,
});

describe('series', () => {
  it('series stack to their sum, each above the one before', () => {
    const columns = fc
      .integer({ min: 1, max: 8 })
      .chain((length) =>
        fc.array(fc.array(fc.nat(1000), { minLength: length, maxLength: length }), { minLength: 1, maxLength: 5 }),
      );
    fc.assert(
      fc.property(columns, (series) => {
        const sums = stacked(series);
        const top = sums.at(-1)!;
        expect(top).toEqual(top.map((_, index) => series.reduce((sum, values) => sum + values[index]!, 0)));
        for (let row = 1; row < sums.length; row++) {
          expect(sums[row]!.every((value, index) => value >= sums[row - 1]![index]!)).toBe(true);
        }
      }),
    );
  });

  it('series turn counts of a step into rates per second', () => {
    expect(perSecond([10, 0], 10_000)).toEqual([1, 0]);
  });

  it('series of many steps are drawn in wider ones that begin at fixed instants, and no whole step loses a count', () => {
    const range = fc.record({ from: fc.nat(10_000), calls: fc.array(fc.nat(9), { minLength: 1, maxLength: 900 }) });
    fc.assert(
      fc.property(range, ({ from, calls }) => {
        const atMs = calls.map((_, index) => (from + index) * 1000);
        const columns = { ...history(atMs).columns, in_slo: calls };
        const { counts, stepMs } = coarser(columns, 1000);
        expect(counts.atMs.length).toBeLessThanOrEqual(240);
        expect(stepMs === 1000).toBe(calls.length <= 240);
        for (const [index, startMs] of counts.atMs.entries()) {
          expect(startMs % stepMs).toBe(0);
          const inStep = calls.filter((_, at) => atMs[at]! >= startMs && atMs[at]! < startMs + stepMs);
          expect(counts.in_slo[index]).toBe(inStep.reduce((sum, value) => sum + value, 0));
        }
        // At most a step at each end is left out.
        expect(counts.atMs.length * stepMs).toBeGreaterThan(calls.length * 1000 - 2 * stepMs);
      }),
    );
  });

  it('series move on by a second with each tick and keep their length', () => {
    const next = withTick(history([1000, 2000, 3000]), tick(4000));

    expect(next.columns.atMs).toEqual([2000, 3000, 4000]);
    expect(next.columns.in_slo).toEqual([0, 0, 7]);
    expect(next.columns.p99Ms).toEqual([null, null, 4]);
    expect(next.totals).toMatchObject({ in_slo: 7, offered: 8 });
  });

  it('series update a second that they already have', () => {
    const next = withTick(history([1000, 2000, 3000]), tick(2000));

    expect(next.columns.atMs).toEqual([1000, 2000, 3000]);
    expect(next.columns.in_slo).toEqual([0, 7, 0]);
  });

  it('series update earlier seconds that a tick corrects, and add those that had no tick', () => {
    const later = { ...tick(1000), in_slo: 0, offered: 3 };
    const untold = { ...tick(4000), in_slo: 1, offered: 1 };
    const next = withTick(history([1000, 2000, 3000]), {
      ...tick(6000),
      earlier: [later, { ...tick(2000), offered: 5 }, untold],
    });

    expect(next.columns.atMs).toEqual([4000, 5000, 6000]);
    expect(next.columns.offered).toEqual([1, 0, 8]);
    expect(next.columns.p50Ms).toEqual([3, null, 3]);

    const kept = withTick(history([1000, 2000, 3000]), { ...tick(3000), earlier: [later] });
    expect(kept.columns.offered).toEqual([3, 0, 8]);
    expect(kept.totals).toMatchObject({ offered: 11, in_slo: 7 });
  });

  it('series are not extrapolated over a gap, and coarser steps stay as they are', () => {
    const gap = history([1000, 2000]);
    const coarse = history([0, 10_000], 10_000);

    expect(withTick(gap, tick(60_000))).toBe(gap);
    expect(withTick(coarse, tick(11_000))).toBe(coarse);
  });

  it('series zoom to the steps between two instants', () => {
    expect(zoomed(history([1000, 2000, 3000, 4000]).columns, [1500, 3500]).atMs).toEqual([2000, 3000]);
  });

  it('series have no share if no call ended', () => {
    expect(goodputShare({ in_slo: 0, late: 0, shed: 0, failed: 0 })).toBeNull();
    expect(goodputShare({ in_slo: 3, late: 1, shed: 0, failed: 0 })).toBe(0.75);
  });
});

function row(name: string, changes: Partial<FunctionRow> = {}): FunctionRow {
  return {
    name,
    version: '1',
    state: 'ready',
    rows: null,
    lastDeath: null,
    residency: 'cold',
    gpus: [],
    gpuState: null,
    coldCause: null,
    overflows: {},
    brought: 0,
    reason: null,
    sloMs: 100,
    pinned: false,
    priority: 100,
    source: 'upload',
    description: '',
    totals: history([0]).totals,
    goodputShare: null,
    requestsPerSecond: 0,
    coldShare: null,
    gpuBytes: 0,
    hostBytes: 0,
    diskBytes: 0,
    statuses: [],
    hits: 0,
    coldStarts: 0,
    diskStarts: 0,
    evictions: {},
    plan: '',
    waiting: 0,
    instances: 0,
    lastUseMs: 0,
    ...changes,
  };
}

describe('the table of functions', () => {
  it('sorts f2 before f10, and rows without a value last in both directions', () => {
    const rows = [row('f10', { goodputShare: 0.5 }), row('f2'), row('f1', { goodputShare: 0.9 })];
    const sorted = (key: SortKey, descending: boolean): string[] =>
      sortRows(rows, { key, descending }).map(({ name }) => name);

    expect(sorted('name', false)).toEqual(['f1', 'f2', 'f10']);
    expect(sorted('goodput', false)).toEqual(['f10', 'f1', 'f2']);
    expect(sorted('goodput', true)).toEqual(['f1', 'f10', 'f2']);
  });

  it('reverses the order when a heading is clicked again', () => {
    const once = nextSort({ key: 'name', descending: false }, 'rate');

    expect(once).toEqual({ key: 'rate', descending: true });
    expect(nextSort(once, 'rate')).toEqual({ key: 'rate', descending: false });
  });

  it.each([
    ['bert', ['bert-a', 'bert-b']],
    ['bert is:missing', ['bert-b']],
    ['is:pinned', ['resnet']],
    ['is:gpu', ['bert-a']],
    ['pictures', ['resnet']],
    ['none', []],
  ])('filters by %s', (filter, expected) => {
    const rows = [
      row('bert-a', { residency: 'gpu', goodputShare: 1 }),
      row('bert-b', { goodputShare: 0.4 }),
      row('resnet', { pinned: true, description: 'Names what is on pictures' }),
    ];

    expect(filterRows(rows, filter).map(({ name }) => name)).toEqual(expected);
  });
});

describe('addresses', () => {
  it('lead to each view, and a function of any name to its page', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), (name) => {
        expect(routeOf(functionLink(name))).toEqual({ view: 'function', name });
      }),
    );
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(routeOf(`#/functions/${text}`)).toMatchObject({ view: expect.stringMatching(/^functions?$/) as string });
      }),
    );
    expect(routeOf('#/functions/%zz')).toEqual({ view: 'function', name: '%zz' });
    expect(routeOf('')).toEqual({ view: 'overview' });
    expect(routeOf('#/functions')).toEqual({ view: 'functions' });
    expect(routeOf('#/publish?name=a%20b')).toEqual({ view: 'publish', name: 'a b' });
    expect(routeOf('#/reports')).toEqual({ view: 'reports' });
    expect(routeOf('#/nothing')).toEqual({ view: 'overview' });
  });
});

describe('calls to copy', () => {
  it('calls to copy are quoted as one shell word each', () => {
    expect(curlOf({ url: 'http://h/function/a', body: "it's", json: false })).toBe(
      String.raw`curl -s --data-binary 'it'\''s' http://h/function/a`,
    );
    expect(curlOf({ url: 'http://h/function/a', body: '@file', json: true })).toBe(
      "curl -s -H 'Content-Type: application/json' --data-binary @file http://h/function/a",
    );
  });

  it('start with zeros in the shapes of the inputs', () => {
    const short = zerosFor([{ name: 'x', datatype: 'FP32', shape: ['batch', 2] }]);
    expect(short).toEqual({ text: '{"input":[[0,0]]}', isLong: false });
    expect(
      zerosFor([
        { name: 'a', datatype: 'BOOL', shape: [1] },
        { name: 'b', datatype: 'BYTES', shape: [-1] },
      ])?.text,
    ).toBe('{"inputs":{"a":[false],"b":["text"]}}');
  });

  it('of an image has all of its numbers, and is not shown; of billions there is none', () => {
    const image = zerosFor([{ name: 'x', datatype: 'FP32', shape: [-1, 3, 224, 224] }]);
    expect(image?.isLong).toBe(true);
    expect((JSON.parse(image!.text) as { input: number[] }).input.flat(3)).toHaveLength(3 * 224 * 224);
    expect(zerosFor([{ name: 'x', datatype: 'FP32', shape: [1e6, 1e6] }])).toBeUndefined();
  });
});

describe('the map of a memory', () => {
  it('the map of a memory shows a part as full if the host keeps it to its limit, and not what is only set aside for processes', () => {
    for (const part of ['sessions', 'pinned', 'inFlight'] as const) {
      expect([95, 96].map((usedBytes) => isFull({ part, bytes: 100, usedBytes }))).toEqual([false, true]);
    }
    for (const part of ['host', 'gpuProcess', 'loads', 'validators', 'cache'] as const) {
      expect(isFull({ part, bytes: 100, usedBytes: 1000 })).toBe(false);
    }
  });

  it('the map of a memory is to scale, has no overlaps and loses no byte', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(10_000), { maxLength: 40 }),
        fc.integer({ min: 1, max: 100_000 }),
        (sizes, capacity) => {
          const residents = sizes.map((bytes, index) => ({
            functionName: `f${index}`,
            version: '1',
            bytes,
            state: 'idle',
            lastUseMs: 0,
            why: '',
          }));
          const { blocks, small } = memoryBlocks(residents, capacity);
          const whole = Math.max(
            capacity,
            sizes.reduce((sum, bytes) => sum + bytes, 0),
            1,
          );
          let end = 0;
          for (const { share, resident } of blocks) {
            expect(share).toBeCloseTo(resident.bytes / whole, 9);
            end += share;
          }
          expect(blocks.length + small.count).toBe(sizes.length);
          expect(end + small.share).toBeLessThanOrEqual(1 + 1e-9);
        },
      ),
    );
  });

  it('fades blocks from now to an hour ago', () => {
    expect(idleness(1_000_000, 1_000_000)).toBe(0);
    expect(idleness(1_000_000, 1_000_000 + 3_600_000)).toBe(1);
    expect(idleness(0, 1)).toBe(1);
  });
});

it('bars narrower than a pixel are merged into one that names the first and the last', () => {
  const bars = [1, 2, 3].map((at) => ({ look: 'copy' as const, name: `l${at}`, startMs: at, endMs: at + 0.5 }));

  expect(mergedBars(bars, 1)).toEqual([{ look: 'copy', name: 'l1 … l3', startMs: 1, endMs: 3.5 }]);
  expect(mergedBars(bars, 0.1)).toEqual(bars);
});

describe('reports', () => {
  it.each([
    ['{', 'this file is not JSON; a report is what `turntable replay --json FILE` writes'],
    ['{}', 'this JSON is not a report of `turntable replay --json` or `plan capacity --json`'],
    ['null', 'this JSON is not a report of `turntable replay --json` or `plan capacity --json`'],
    ['{"format":"turntable-sweep","version":1}', 'this sweep is of an older Turntable'],
  ])('reports refuse %s in words', (text, message) => {
    expect(() => parseReport(text)).toThrow(message);
  });

  it('reports mark the better of their figures, where one is better', () => {
    expect(bestOf([0.9, 0.95], 'more')).toBe(1);
    expect(bestOf([null, 80, 50], 'less')).toBe(2);
    expect(bestOf([3, 3], 'less')).toBe(-1);
    expect(bestOf([3, 4], 'neither')).toBe(-1);
  });

  it('reports tell the share of answers within any latency from a few points', () => {
    const cdf = [
      [0, 2],
      [0.5, 4],
      [0.9, 4],
      [1, 10],
    ] as const;
    expect([1, 2, 3, 4, 7, 10, 99].map((ms) => shareWithin(cdf, ms))).toEqual([0, 0, 0.25, 0.9, 0.95, 1, 1]);
  });

  it('draw shares near 100% on an axis that tells them apart, and all lie on it', () => {
    expect(shareRange([{ values: [0.2, 1] }])).toEqual([0, 1]);
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 1 }), (values) => {
        const [from, to] = shareRange([{ values }]);
        expect(from).toBeLessThanOrEqual(Math.min(...values));
        expect(to).toBeGreaterThanOrEqual(Math.max(...values));
        expect(from).toBeLessThan(to);
      }),
    );
  });
});

const clock = (atMs: number): string => `${atMs / 1000}s`;

describe('the head of the overview', () => {
  const refused = { calls: 0, functions: 0, most: null };
  const none = { calls: 0, oldestMs: 0 };
  const answer = {
    rangeMs: 60_000,
    atMs: 0,
    functions: 120,
    called: 40,
    missing: 3,
    few: 0,
    dependencies: [],
    overdue: none,
    refused,
    limited: [],
    worst: [],
  };

  it('the head of the overview says how many of all functions miss their SLO', () => {
    expect(headline(answer)).toBe('3 of 120 functions miss their SLO');
    expect(headline({ ...answer, functions: 1, called: 1, missing: 1 })).toBe('1 of 1 function misses its SLO');
    expect(headline({ ...answer, overdue: { calls: 12, oldestMs: 24_000 } })).toBe(
      '3 of 120 functions miss their SLO; 12 calls are overdue, the oldest 24 s old',
    );
    expect(headline({ ...answer, missing: 0 })).toBe('No function misses its SLO: 40 of 120 were called');
    expect(headline({ ...answer, missing: 0, called: 0 })).toBe('None of 120 functions was called');
    expect(headline({ ...answer, missing: 0, few: 1 })).toBe(
      'No function misses its SLO: 40 of 120 were called; 1 call missed it, too few to judge',
    );
  });

  it('the head of the overview says once what is true of all functions, and of each what is left', () => {
    const cores = 'cores 5% by Turntable, 90% by others';
    const [memory, others] = ['Give them more memory (cpu.memory), or pin it.', 'Other programs use the cores.'];
    const rows = [
      { facts: `evicted once for b: full; ${cores}`, advice: `${memory} ${others}` },
      { facts: cores, advice: others },
    ];
    expect(saidOnce(rows)).toEqual({
      all: `${cores}. ${others}`,
      rows: [`evicted once for b: full. ${memory}`, ''],
    });
    expect(saidOnce(rows.slice(0, 1))).toEqual({
      all: '',
      rows: [`evicted once for b: full; ${cores}. ${memory} ${others}`],
    });
    expect(saidOnce([{ facts: 'failed', advice: null }, rows[1]!]).all).toBe('');
  });

  it("the head of the overview says how many calls were refused for the caller's mistake, which count as no function's miss", () => {
    expect(refusedText(refused)).toBeUndefined();
    expect(refusedText({ calls: 1, functions: 1, most: 'ocr' })).toMatch(/^1 call was refused .*: at$/);
    expect(refusedText({ calls: 1200, functions: 2, most: 'ocr' })).toMatch(
      /^1,200 calls were .*: at 2 functions, most at$/,
    );
  });

  it('the head of the overview lists the causes by their share of the missed calls', () => {
    const causes = [
      { cause: 'load' as const, words: 'waited for the model', calls: 6 },
      { cause: 'failed' as const, words: 'failed', calls: 3 },
      { cause: 'queue' as const, words: 'waited for a turn', calls: 1 },
    ];
    expect(causesText(causes)).toBe('waited for the model 60.0%, failed 30.0%, waited for a turn 10.0%');
  });

  it('the head of the overview says since when calls miss, and whether it goes on', () => {
    expect(spanText({ sinceMs: 5000, lastMs: 70_000, overdue: none }, 100_000, clock)).toBe('since 5s, and still');
    expect(spanText({ sinceMs: 5000, lastMs: 30_000, overdue: none }, 100_000, clock)).toBe('from 5s to 30s');
    const overdue = { calls: 3, oldestMs: 24_000 };
    expect(spanText({ sinceMs: null, lastMs: null, overdue }, 100_000, clock)).toBe('since 76s, and still');
  });
});

describe('points of a plot', () => {
  it('points of a plot are drawn for values without a neighbour, which a line would not show', () => {
    expect(alone([null, 5, null, 1, 2, null, 3])).toEqual([1, 6]);
    expect(alone([1, 2, 3])).toBeNull();
    expect(alone([])).toBeNull();
  });

  it('points of a plot end with the latest value', () => {
    expect(latestOf([1, 0, null])).toBe(0);
    expect(latestOf([null])).toBeNull();
  });
});
