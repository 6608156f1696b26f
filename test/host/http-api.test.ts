/** The dashboard's API against the HTTP server with pools that answer at once. */
import { describe, expect, it } from 'vitest';
import { CpuError } from '../../src/cpu/index.ts';
import type {
  AnatomyAnswer,
  FunctionAnswer,
  FunctionsAnswer,
  EventAnswer,
  HistoryAnswer,
  MemoryAnswer,
  SecondTotals,
  TickEvent,
  TroubleAnswer,
} from '../../src/host/dashboard/index.ts';
import type { SchedulerAnswer, SheetAnswer } from '../../src/host/gpu/index.ts';
import { startTestHost, type TestHost } from './test-host.ts';

const pairBody = JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 2], data: [1, 2] }] });

/** With an SLO that no machine misses, unless the headers give another one. */
async function infer(host: TestHost, headers: Record<string, string> = {}): Promise<number> {
  const response = await fetch(`${host.url}/v2/models/pair/infer`, {
    method: 'POST',
    body: pairBody,
    headers: { 'X-Turntable-SLO': '60s', ...headers },
  });
  await response.arrayBuffer();
  return response.status;
}

async function get<Answer>(host: TestHost, path: string): Promise<Answer> {
  const response = await fetch(`${host.url}${path}`);
  expect(response.status).toBe(200);
  return (await response.json()) as Answer;
}

/** Events of a stream as they arrive. */
async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<{ event: string; data: unknown }> {
  let text = '';
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const [, event] = /^event: (.*)$/m.exec(text.slice(0, end)) ?? [];
      const [, data] = /^data: (.*)$/m.exec(text.slice(0, end)) ?? [];
      text = text.slice(end + 2);
      if (event !== undefined && data !== undefined) yield { event, data: JSON.parse(data) as unknown };
    }
  }
}

describe('the history over HTTP', () => {
  it('counts each invocation once, in total and in its function', async () => {
    await using host = await startTestHost();
    const statuses = [await infer(host), await infer(host), await infer(host)];

    const whole = await get<HistoryAnswer>(host, '/api/history?range=1m');
    const one = await get<HistoryAnswer>(host, '/api/history?range=1h&function=pair');

    expect(statuses).toEqual([200, 200, 200]);
    expect(whole.totals).toMatchObject({ offered: 3, in_slo: 3, late: 0, cpu: 3 });
    expect(one.totals).toMatchObject({ offered: 3, in_slo: 3 });
    expect(whole.columns.in_slo.reduce((sum, count) => sum + count, 0)).toBe(3);
    expect(whole.columns.atMs).toHaveLength(whole.columns.p99Ms.length);
  });

  it.each([
    ['range=5', "range '5' is not a duration from 1m to 24h; it lacks a unit: 5ms or 5s?"],
    ['range=2d', "range '2d' is not a duration from 1m to 24h"],
    ['range=25h', "range '25h' is not a duration from 1m to 24h"],
  ])('refuses %s by name', async (query, message) => {
    await using host = await startTestHost();

    const response = await fetch(`${host.url}/api/history?${query}`);

    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ error: message });
  });

  it('refuses an unknown function', async () => {
    await using host = await startTestHost();

    const response = await fetch(`${host.url}/api/history?function=none`);

    expect(response.status).toBe(404);
  });
});

describe('functions over the API', () => {
  it('gives each function its own goodput, and reading it does not count as use', async () => {
    await using host = await startTestHost();
    await infer(host);
    await infer(host, { 'X-Turntable-SLO': '0.000001ms' });
    const before = host.statistics.find('pair@1')?.lastInferenceAtMs;

    const { functions } = await get<FunctionsAnswer>(host, '/api/functions?range=1h');

    expect(functions).toMatchObject([{ name: 'pair', goodputShare: 0.5, totals: { in_slo: 1, late: 1 } }]);
    expect(host.statistics.find('pair@1')?.lastInferenceAtMs).toBe(before);
  });

  it('shows one function with its latencies and events', async () => {
    await using host = await startTestHost();
    await infer(host);
    await infer(host, { 'X-Turntable-SLO': '0.000001ms' });

    const answer = await get<FunctionAnswer>(host, '/api/functions/pair?range=1h');

    expect(answer.latencies.counts.reduce((sum, count) => sum + count, 0)).toBe(2);
    expect(answer.inputs.map(({ name }) => name)).toEqual(['x']);
    expect(answer.curl).toContain(`${host.url}/function/pair`);
    expect(answer.events.map(({ kind }) => kind)).toContain('slo-breach');
  });

  it('names the functions that miss their SLO, with the causes of their missed calls', async () => {
    await using host = await startTestHost();
    const quiet = await get<TroubleAnswer>(host, '/api/trouble');
    for (let call = 0; call < 17; call++) await infer(host);
    const few = await get<TroubleAnswer>(host, '/api/trouble?range=1h');
    await infer(host, { 'X-Turntable-SLO': '0.000001ms' });
    host.pools.answer = () => Promise.reject(new CpuError('instance-died', 'it died'));
    await infer(host);
    host.pools.answer = () => Promise.reject(new CpuError('queue-full', 'the queue is full'));
    await infer(host);
    await fetch(`${host.url}/function/pair`, { method: 'POST', body: 'no numbers' });

    const answer = await get<TroubleAnswer>(host, '/api/trouble?range=1h');

    expect(quiet).toMatchObject({ functions: 1, called: 0, missing: 0, worst: [] });
    expect(few).toMatchObject({ called: 1, missing: 0, worst: [] });
    expect(answer).toMatchObject({
      functions: 1,
      called: 1,
      missing: 1,
      refused: { calls: 1, functions: 1, most: 'pair' },
    });
    const [row] = answer.worst;
    expect(row).toMatchObject({ name: 'pair', ended: 20, missed: 3, goodputShare: 0.85, clientErrors: 1 });
    expect(Object.fromEntries(row!.causes.map(({ cause, calls }) => [cause, calls]))).toMatchObject({
      shed: 1,
      failed: 1,
    });
    expect(row!.causes.reduce((sum, { calls }) => sum + calls, 0)).toBe(3);
    expect(row!.sinceMs).toBeLessThanOrEqual(row!.lastMs!);
    expect((await fetch(`${host.url}/api/trouble?range=5`)).status).toBe(400);
  });

  it('lists what is in memory and on disk', async () => {
    await using host = await startTestHost();

    const { gpus, disk } = await get<MemoryAnswer>(host, '/api/memory');

    expect(gpus).toEqual([]);
    expect(disk.residents).toMatchObject([{ functionName: 'pair', version: '1' }]);
  });
});

describe('the scheduler over the API', () => {
  it('says that a host has no GPU, and which policy it would use', async () => {
    await using host = await startTestHost();

    const whole = await get<SchedulerAnswer>(host, '/api/scheduler');
    const one = await get<SheetAnswer>(host, '/api/scheduler/pair');

    expect(whole).toMatchObject({ status: 'none', reason: 'this host drives no GPU', isEmulated: false, gpus: [] });
    // JSON has no infinity, and `best` has bounds.
    expect(whole.policy).toMatchObject({
      name: 'best',
      eviction: 'value-suffix',
      waitBoundMs: 1000,
      copies: 'weighed',
    });
    expect(whole.functions).toEqual([
      { name: 'pair', version: '1', index: null, residents: [], hostWait: 'nothing', idleMs: null },
    ]);
    expect(one.sheet).toEqual({
      gpus: [],
      cpu: { latencyMs: 7, cores: 1 },
      sloMs: 100,
      // For callers 1 is the highest, for the scheduler the highest number.
      priority: -100,
      pinned: false,
    });
  });

  it('refuses an unknown function', async () => {
    await using host = await startTestHost();

    expect((await fetch(`${host.url}/api/scheduler/none`)).status).toBe(404);
  });
});

describe('events', () => {
  it('report an SLO breach at once, and the last second every second', async () => {
    await using host = await startTestHost();
    const stop = new AbortController();
    const { body, headers } = await fetch(`${host.url}/api/events`, { signal: stop.signal });
    let breach: EventAnswer | undefined;
    // A second is told in a later tick, and in more than one, if the timer is late by a second or more.
    const seconds = new Map<number, SecondTotals>();
    const sum = (of: 'offered' | 'late'): number => [...seconds.values()].reduce((all, second) => all + second[of], 0);
    await infer(host, { 'X-Turntable-SLO': '0.000001ms' });

    for await (const { event, data } of eventsOf(body!)) {
      if (event === 'event') breach = data as EventAnswer;
      if (event === 'tick') {
        const { earlier, ...last } = data as TickEvent;
        for (const second of [...earlier, last]) seconds.set(second.atMs, second);
      }
      if (breach !== undefined && sum('late') > 0) break;
    }
    stop.abort();

    expect(headers.get('content-type')).toBe('text/event-stream');
    // Behind nginx as it is set up by default, nothing came for half a minute.
    expect(headers.get('x-accel-buffering')).toBe('no');
    expect(breach).toMatchObject({ kind: 'slo-breach', functionName: 'pair', level: 'warning' });
    expect([sum('offered'), sum('late')]).toEqual([1, 1]);
  });

  it('end with the host', async () => {
    const host = await startTestHost();
    const { body } = await fetch(`${host.url}/api/events`);
    const read = (async () => {
      let count = 0;
      for await (const _ of eventsOf(body!)) count++;
      return count;
    })();

    await host[Symbol.asyncDispose]();

    await expect(read).resolves.toBeGreaterThanOrEqual(0);
  });
});

describe('the anatomy of a cold start', () => {
  it('has every mode, layer by layer, and says that it is simulated', async () => {
    await using host = await startTestHost();

    const answer = await get<AnatomyAnswer>(host, '/api/anatomy?model=resnet50&machine=p3.8xlarge');

    expect(answer.timelines.map(({ name }) => name)).toEqual([
      'baseline',
      'pipeswitch',
      'dha',
      'pt',
      'pt+dha',
      'interleave',
    ]);
    expect(answer.provenance).toContain('simulated');
    const [baseline, pipeswitch] = answer.timelines;
    expect(baseline!.latencyMs).toBeGreaterThan(pipeswitch!.latencyMs);
  });

  it.each([
    ['model=none', "there is no model 'none'"],
    ['model=resnet50&machine=none', "there is no machine preset 'none'"],
    ['model=resnet50&gpu=9', 'p3.8xlarge has no GPU 9; it has 4'],
    ['model=resnet50&gpu=x', "gpu is 'x', but must be a whole number of at least 0"],
  ])('refuses %s by name', async (query, message) => {
    await using host = await startTestHost();

    const response = await fetch(`${host.url}/api/anatomy?${query}`);

    expect(response.status).toBe(400);
    expect(((await response.json()) as { error: string }).error).toContain(message);
  });
});
