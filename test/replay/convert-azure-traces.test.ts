import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { convertTrace } from '../../scripts/convert-trace.ts';
import { readAzure2019 } from '../../scripts/convert-trace/azure-2019.ts';
import type { MinuteTable } from '../../scripts/convert-trace/minute-table.ts';
import { openForeign } from '../../scripts/convert-trace/open.ts';
import {
  azureLikeTrace,
  minuteMs,
  openTrace,
  poissonTrace,
  summarizeTrace,
  type TraceInvocation,
} from '../../src/replay/index.ts';
import { azureLikeRows, writeAzure2019, writeAzure2021 } from '../support/azure-traces.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-foreign-traces-'));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
const newFile = (extension: string): string => join(folder, `${files++}.${extension}`);
const fileOf = (text: string | Uint8Array, extension = 'csv'): string => {
  const file = newFile(extension);
  writeFileSync(file, text);
  return file;
};
const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `f${index}`);
const inOrder = (invocations: readonly TraceInvocation[]): boolean =>
  invocations.every(({ arrivalMs }, index) => index === 0 || invocations[index - 1]!.arrivalMs <= arrivalMs);
const cells = (table: MinuteTable): number[][] => {
  const rows = table.functionNames.map(() => Array<number>(table.minutes).fill(0));
  for (let minute = 0; minute < table.minutes; minute++) {
    table.readMinute(minute, (index, count) => {
      rows[index]![minute] = count;
    });
  }
  return rows;
};

const rowsOf = (counts: readonly (readonly number[])[]) =>
  counts.map((row, index) => ({ owner: 'o', app: 'a', name: `f${index}`, trigger: 'http', counts: row }));

const counted = (trace: Iterable<TraceInvocation>, fromMs: number, toMs: number): number[] => {
  const totals = Array<number>(10).fill(0);
  for (const { arrivalMs, functionIndex } of trace) {
    if (arrivalMs >= fromMs && arrivalMs < toMs) totals[functionIndex]!++;
  }
  return totals;
};

describe('a trace of Azure Functions 2019', () => {
  it('a trace of Azure Functions 2019 returns by minute the counts written by function', async () => {
    const count = fc.oneof(fc.constant(0), fc.nat(9), fc.nat(2 ** 40));
    const table = fc
      .nat({ max: 5 })
      .chain((minutes) =>
        fc.array(fc.array(count, { minLength: minutes + 1, maxLength: minutes + 1 }), { maxLength: 20 }),
      );
    await fc.assert(
      fc.asyncProperty(table, async (counts) => {
        const minutes = counts[0]?.length ?? 3;
        const file = newFile('csv');
        await writeAzure2019(file, minutes, rowsOf(counts));
        const read = await readAzure2019(file);
        expect(cells(read)).toEqual(counts);
        expect([...read.totals]).toEqual(counts.map((row) => row.reduce((sum, each) => sum + each, 0)));
      }),
      { numRuns: 30 },
    );
  });

  it('a trace of Azure Functions 2019 keeps its counts on disk when they are too many for memory', async () => {
    // 6,000 functions with two bytes a cell overflow the 2 KiB of each minute several times.
    const counts = Array.from({ length: 6000 }, (_, row) => [row % 3, 1000 + row, 0, row % 2 === 0 ? 0 : 7]);
    const file = newFile('csv');
    await writeAzure2019(file, 4, rowsOf(counts));
    expect(cells(await readAzure2019(file))).toEqual(counts);
  });

  it('a trace of Azure Functions 2019 is the generated trace again, invocation for invocation', async () => {
    const options = { functionNames: names(40), ratePerS: 5, minutes: 12, seed: 3 };
    const file = newFile('csv');
    await writeAzure2019(file, options.minutes, azureLikeRows(options));
    const opened = await openForeign(file, { seed: options.seed });
    expect([...opened.invocations()]).toEqual([...azureLikeTrace(options).invocations()]);
  });

  it('arrives in order, with the counts of each minute, wherever arrivals are placed', async () => {
    const counts = [
      [3, 0, 5],
      [0, 2, 5],
      [1, 1, 1],
    ];
    const file = newFile('csv');
    await writeAzure2019(file, 3, rowsOf(counts));
    for (const placement of ['uniform', 'even'] as const) {
      const invocations = [...(await openForeign(file, { placement, seed: 9 })).invocations()];
      expect(inOrder(invocations)).toBe(true);
      const found = counts.map((row) => row.map(() => 0));
      for (const { arrivalMs, functionIndex } of invocations) {
        found[functionIndex]![Math.floor(arrivalMs / minuteMs)]!++;
      }
      expect(found).toEqual(counts);
    }
  });

  it('a trace of Azure Functions 2019 is scaled to a rate and folded onto fewer functions, most invoked first', async () => {
    const counts = Array.from({ length: 30 }, (_, row) => Array<number>(20).fill((row % 5) * 10));
    const file = newFile('csv');
    await writeAzure2019(file, 20, rowsOf(counts));
    const opened = await openForeign(file, { ratePerS: 2, functions: 7, seed: 1 });
    const { requests, totals } = summarizeTrace(opened);
    expect(opened.functionNames).toHaveLength(7);
    expect(Math.abs(requests - 2400)).toBeLessThan(150);
    expect(totals[0]!).toBeGreaterThan(totals[6]!);
  });

  it('a trace of Azure Functions 2019 keeps the share of rare functions when it is scaled down', async () => {
    // A quarter of one invocation a minute is rounded down to none, as in the artifact.
    const file = newFile('csv');
    await writeAzure2019(file, 100, rowsOf(Array.from({ length: 40 }, () => Array<number>(100).fill(1))));
    const kept = summarizeTrace(await openForeign(file, { ratePerS: 0.25 * (40 / 60), seed: 1 })).requests;
    // 4,000 draws with probability 1/4: 1,000 and six deviations.
    expect(Math.abs(kept - 1000)).toBeLessThan(6 * Math.sqrt(4000 * 0.25 * 0.75));
  });

  it('a trace of Azure Functions 2019 reads a part of it as the same part of the whole', async () => {
    const options = { functionNames: names(10), ratePerS: 3, minutes: 8, seed: 4 };
    const file = newFile('csv');
    await writeAzure2019(file, options.minutes, azureLikeRows(options));
    const whole = await openForeign(file);
    const part = await openForeign(file, { fromMs: 2 * minuteMs, toMs: 5 * minuteMs });
    expect(counted(part.invocations(), 0, Infinity)).toEqual(counted(whole.invocations(), 2 * minuteMs, 5 * minuteMs));
    expect(Math.max(...Array.from(part.invocations(), ({ arrivalMs }) => arrivalMs))).toBeLessThan(3 * minuteMs);
  });

  it("a trace of Azure Functions 2019 as the artifact: counts rounded down, the whole file's mean, and its own arrivals", async () => {
    // 0.9 of 10 and of 1: the artifact keeps 9 and 0.
    const counts = [Array<number>(10).fill(10), Array<number>(10).fill(1)];
    const file = newFile('csv');
    await writeAzure2019(file, 10, rowsOf(counts));
    const opened = await openForeign(file, { ratePerS: (11 / 60) * 0.9, asArtifact: true, toMs: 5 * minuteMs });
    const invocations = [...opened.invocations()];
    expect(new Set(invocations.map(({ functionIndex }) => functionIndex))).toEqual(new Set([0]));
    // Each minute is drawn with seed 0, so all are alike.
    const first = invocations.filter(({ arrivalMs }) => arrivalMs < minuteMs).map(({ arrivalMs }) => arrivalMs);
    const second = invocations
      .filter(({ arrivalMs }) => arrivalMs >= minuteMs && arrivalMs < 2 * minuteMs)
      .map(({ arrivalMs }) => arrivalMs - minuteMs);
    expect(first.length).toBeGreaterThan(0);
    expect(second).toHaveLength(first.length);
    for (const [index, atMs] of first.entries()) expect(second[index]).toBeCloseTo(atMs, 6);
  });

  it.each([
    ['HashOwner,HashApp,HashFunction,Trigger,1,3\n', /line 1, column 6: the title is '3', not the minute '2'/],
    [
      'HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,1\n',
      /line 2: the row has 1 minutes, but the header has 2/,
    ],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,1,2,3\n', /line 2: the row has more than the 2 minutes/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,1,-2\n', /line 2, minute 2: '-2' is not a whole number/],
    [
      'HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,1,2.5\n',
      /line 2, minute 2: '2\.5' is not a whole number/,
    ],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,few,2\n', /line 2, minute 1: 'few' is not a whole number/],
    ['HashOwner,HashApp,HashFunction,Trigger,1\no,a,f,http,1e300\n', /more than a count can be/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\n\no,a,,http,1,1\n', /line 3, HashFunction: the name .* is empty/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a\n', /line 2, HashApp: the row ends here/],
    ['HashOwner,HashApp,HashFunction,Trigger,1\no,a,f,http,99999999999999999999\n', /more than a count can be/],
  ])('a trace of Azure Functions 2019 is refused where it is malformed: %j', async (text, message) => {
    await expect(openForeign(fileOf(text))).rejects.toThrow(message);
  });
});

describe('a table of minutes that another tool wrote', () => {
  const notations: readonly ((count: number) => string)[] = [
    String,
    (count) => count.toFixed(1),
    (count) => `${count}.`,
    (count) => count.toExponential(),
    (count) => ` +${count} `,
    (count) => `"${count}"`,
  ];
  const gaps = ['', ' ', 'NaN', 'nan', 'NULL', '<NA>', '""'];
  const cell = fc.oneof(
    fc.record({ count: fc.nat(20), written: fc.constantFrom(...notations) }),
    fc.constantFrom(...gaps),
  );

  it('a table of minutes that another tool wrote has its counts in any notation of a whole number, and gaps that count as 0 with a warning', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(cell, { minLength: 1, maxLength: 8 }), async (cells) => {
        const header = ['HashOwner,HashApp,HashFunction,Trigger', ...cells.map((_, index) => index + 1)].join(',');
        const row = cells.map((each) => (typeof each === 'string' ? each : each.written(each.count)));
        const file = fileOf(`${header}\no,a,f,http,${row.join(',')}\no,a,always,http,${row.map(() => 1).join(',')}\n`);
        const table = await readAzure2019(file);
        const wanted = cells.map((each) => (typeof each === 'string' ? 0 : each.count));
        const read = cells.map((_, minute) => {
          let found = 0;
          table.readMinute(minute, (index, count) => void (index === 0 && (found = count)));
          return found;
        });
        expect(read).toEqual(wanted);
        const empty = cells.filter((each) => typeof each === 'string').length;
        expect((await openForeign(file)).warnings).toEqual(
          empty === 0 ? [] : [`empty minutes in the trace, which count as no invocation: ${empty}.`],
        );
      }),
      { numRuns: 40 },
    );
  });
});

describe('a trace of Azure Functions 2021', () => {
  it('a trace of Azure Functions 2021 with seconds since 1970 begins with its earliest call', async () => {
    const opened = await openForeign(
      fileOf('app,func,end_timestamp,duration\na,f,1612137602.5,0.5\na,f,1612137601,1\n'),
    );
    expect([...opened.invocations()]).toEqual([
      { arrivalMs: 0, functionIndex: 0, durationMs: 1000 },
      { arrivalMs: 2000, functionIndex: 0, durationMs: 500 },
    ]);
  });

  it('arrives in order, whatever the order of rows, at the end minus the duration', async () => {
    const file = fileOf('app,func,end_timestamp,duration\r\na,late,9.5,0.5\r\na,early,3,2.75\r\na,before,1,2\r\n');
    const opened = await openForeign(file);
    expect(opened.functionNames).toEqual(['late', 'early', 'before']);
    expect([...opened.invocations()]).toEqual([
      { arrivalMs: 0, functionIndex: 2, durationMs: 2000 },
      { arrivalMs: 250, functionIndex: 1, durationMs: 2750 },
      { arrivalMs: 9000, functionIndex: 0, durationMs: 500 },
    ]);
  });

  it('a trace of Azure Functions 2021 is the generated trace again, to a microsecond', async () => {
    const trace = poissonTrace({ functionNames: names(5), ratePerS: 100, requests: 500, seed: 2 });
    const file = newFile('csv');
    await writeAzure2021(file, trace.functionNames, trace.invocations());
    const written = [...trace.invocations()];
    const firstMs = written[0]!.arrivalMs;
    const opened = await openForeign(file);
    const read = [...opened.invocations()];
    expect(read).toHaveLength(written.length);
    for (const [index, { arrivalMs, functionIndex }] of written.entries()) {
      expect(read[index]!.arrivalMs).toBeCloseTo(arrivalMs - firstMs, 3);
      expect(opened.functionNames[read[index]!.functionIndex]).toBe(`f${functionIndex}`);
    }
  });

  it.each([
    ['a,f,1\n', /line 2: the row has 3 fields instead of 4/],
    ['a,f,1,2,3\n', /line 2: the row has 5 fields instead of 4/],
    ['a,f,1,2\na,f,soon,2\n', /line 3, end_timestamp: 'soon' is not a number of seconds/],
    ['a,f,1,\n', /line 2, duration: '' is not a number of seconds/],
    ['a,f,1,-2\n', /line 2, duration: '-2' is less than no time/],
    ['a,,1,2\n', /line 2, func: the name of the function is empty/],
  ])('a trace of Azure Functions 2021 is refused where it is malformed: %j', async (rows, message) => {
    await expect(openForeign(fileOf(`app,func,end_timestamp,duration\n${rows}`))).rejects.toThrow(message);
  });
});

describe('converting a trace', () => {
  const table = 'HashOwner,HashApp,HashFunction,Trigger,1,2,3\no,a,f,http,0,4,0\no,a,g,http,1,0,0\n';
  const calls = 'app,func,end_timestamp,duration\na,f,1000,1\na,g,1500,1\na,f,1600,1\n';

  it.each([
    ['of 2019', table, 5],
    ['of 2021', calls, 3],
    ["of Azure's language models", 'TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00Z,9,100\n', 1],
    ['with a byte order mark', `\uFEFF${calls}`, 3],
  ])('a trace %s is, converted, what replay opens: the same calls of the same functions', async (_, text, count) => {
    const [from, to] = [fileOf(gzipSync(text), 'csv.gz'), newFile('jsonl')];
    const { calls: written, warnings } = await convertTrace(from, to, { seed: 3 });
    const foreign = await openForeign(from, { seed: 3 });
    const opened = await openTrace(to);
    expect(written).toBe(count);
    expect(opened.functionNames).toEqual(foreign.functionNames);
    expect([...opened.invocations()]).toEqual([...foreign.invocations()]);
    expect(warnings).toEqual(foreign.warnings);
  });

  it('a trace of which no call is left is refused', async () => {
    const none = /^no invocation of .* is left in /;
    await expect(convertTrace(fileOf(table), newFile('jsonl'), { fromMs: 2 * minuteMs })).rejects.toThrow(none);
    await expect(convertTrace(fileOf(table), newFile('jsonl'), { fromMs: 9 * minuteMs, ratePerS: 3 })).rejects.toThrow(
      none,
    );
    await expect(convertTrace(fileOf(table), newFile('jsonl'), { ratePerS: 1e-9 })).rejects.toThrow(none);
    await expect(convertTrace(fileOf(calls.slice(0, 32)), newFile('jsonl'))).rejects.toThrow(none);
  });

  it('options that a format has no use for are refused', async () => {
    const file = fileOf(calls);
    await expect(openForeign(file, { ratePerS: 3 })).rejects.toThrow(/replay takes --from, --duration and --rate/);
    await expect(openForeign(file, { functions: 3 })).rejects.toThrow(/names its functions: replay folds them/);
  });

  it('a file that is no trace, is empty or does not exist is named', async () => {
    await expect(openForeign(fileOf('time,what\n'))).rejects.toThrow(/line 1: 'time,what' begins no trace/);
    await expect(openForeign(fileOf('{"time":1,"what":"x"}\n'))).rejects.toThrow(
      /line 1: '\{"time":1,"what":"x"\}' begins no trace: .*2019 .*2021 .*LLM .*BurstGPT .*Mooncake /,
    );
    await expect(openForeign(fileOf(''))).rejects.toThrow(/is empty/);
    await expect(openForeign(join(folder, 'missing.csv'))).rejects.toThrow(/missing.csv cannot be read/);
  });
});
