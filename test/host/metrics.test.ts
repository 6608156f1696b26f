/** Accounting: how invocations change the statistics, and what a scrape shows. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CpuError, type CpuErrorCode } from '../../src/cpu/index.ts';
import { Histogram } from '../../src/host/records/statistics.ts';
import { inherited, promlint, promtool } from '../support/prometheus-lint.ts';
import { deferred, echo } from './fake-pools.ts';
import { functionVersion } from './fake-store.ts';
import { startTestHost, type TestHost } from './test-host.ts';

let host: TestHost;
beforeEach(async () => {
  host = await startTestHost();
});
afterEach(async () => {
  await host[Symbol.asyncDispose]();
});

async function scrape(): Promise<string> {
  return (await fetch(`${host.url}/metrics`)).text();
}

/** The value of a series, by its name and labels as written. */
async function sample(series: string): Promise<number | undefined> {
  const line = (await scrape()).split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

async function infer(rows = 1, headers: Record<string, string> = {}): Promise<number> {
  const data = Array.from({ length: rows * 2 }, () => 1);
  const body = JSON.stringify({ inputs: [{ name: 'x', shape: [rows, 2], datatype: 'FP32', data }] });
  const reply = await fetch(`${host.url}/v2/models/pair/infer`, { method: 'POST', body, headers });
  await reply.arrayBuffer();
  return reply.status;
}

function failWith(code: CpuErrorCode): void {
  host.pools.answer = () => Promise.reject(new CpuError(code, code));
}

test("successful invocations are counted under Triton's names", async () => {
  host.pools.answer = (invocation) => ({ ...echo(invocation), batchSize: 2, batchRows: 4 });
  await infer(3);
  await infer(1);
  const labels = '{model="pair",version="1"}';
  expect(await sample(`nv_inference_request_success${labels}`)).toBe(2);
  expect(await sample(`nv_inference_count${labels}`)).toBe(4);
  expect(await sample(`nv_inference_exec_count${labels}`)).toBe(1);
  expect(await sample(`nv_inference_queue_duration_us${labels}`)).toBe(2000);
  expect(await sample(`nv_inference_compute_infer_duration_us${labels}`)).toBe(4000);
  expect(await sample(`nv_inference_request_duration_us${labels}`)).toBeGreaterThan(0);
  const { model_stats: statistics } = (await (await fetch(`${host.url}/v2/models/pair/stats`)).json()) as {
    model_stats: [{ last_inference: number }];
  };
  expect(statistics[0]).toMatchObject({
    inference_count: 4,
    execution_count: 1,
    inference_stats: { success: { count: 2 }, fail: { count: 0, ns: 0 }, queue: { count: 2, ns: 2_000_000 } },
    batch_stats: [{ batch_size: 4, compute_infer: { count: 1, ns: 2_000_000 } }],
  });
  expect(Math.abs(Date.now() - statistics[0].last_inference)).toBeLessThan(60_000);
});

test('batch_stats count the runs by their rows, whether a client or the host made the batch', async () => {
  for (const rows of [3, 3, 1]) await infer(rows);
  // Two calls of 1 and 4 rows that share a run.
  host.pools.answer = (invocation) => ({ ...echo(invocation), batchSize: 2, batchRows: 5 });
  await Promise.all([infer(1), infer(4)]);
  const reply = await fetch(`${host.url}/v2/models/pair/stats`);
  const { model_stats: statistics } = (await reply.json()) as {
    model_stats: [{ batch_stats: { batch_size: number; compute_infer: { count: number } }[] }];
  };
  const [{ batch_stats: batches }] = statistics;
  expect(batches.map(({ batch_size: rows, compute_infer: { count } }) => [rows, count])).toEqual([
    [1, 1],
    [3, 2],
    [5, 1],
  ]);
  expect(statistics[0]).toMatchObject({ inference_count: 12, execution_count: 4 });
});

async function outcomes(): Promise<Record<string, number>> {
  const found = (await scrape()).matchAll(/^turntable_goodput_total\{function="pair",outcome="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries(Array.from(found, ([, outcome = '', count]) => [outcome, Number(count)]));
}

describe('goodput', () => {
  test("uses the function's SLO, or that of the call", async () => {
    await infer();
    await infer(1, { 'X-Turntable-SLO': '0.001ms' });
    expect(await outcomes()).toEqual({ in_slo: 1, late: 1, shed: 0, failed: 0 });
  });

  const failures: [CpuErrorCode, string | undefined, string][] = [
    ['queue-full', 'shed', 'REJECTED'],
    ['deadline-passed', 'shed', 'REJECTED'],
    ['instance-died', 'failed', 'BACKEND'],
    ['inference-failed', 'failed', 'BACKEND'],
    ['inference-input', undefined, 'OTHER'],
  ];
  test.each(failures)('counts %s as %s, and as the failure %3$s', async (code, outcome, reason) => {
    failWith(code);
    await infer();
    const expected = { in_slo: 0, late: 0, shed: 0, failed: 0, ...(outcome === undefined ? {} : { [outcome]: 1 }) };
    expect(await outcomes()).toEqual(expected);
    expect(await sample(`nv_inference_request_failure{model="pair",version="1",reason="${reason}"}`)).toBe(1);
    expect(await sample(`turntable_errors_total{code="${code}"}`)).toBe(1);
  });

  test("counts a client's bad input as a separate failure, not against the SLO", async () => {
    const body = '{"inputs":[]}';
    await (await fetch(`${host.url}/v2/models/pair/infer`, { method: 'POST', body })).arrayBuffer();
    expect(await outcomes()).toEqual({ in_slo: 0, late: 0, shed: 0, failed: 0 });
    expect(await sample('nv_inference_request_failure{model="pair",version="1",reason="OTHER"}')).toBe(1);
    expect(await sample('gateway_function_invocation_total{function_name="pair",code="400"}')).toBe(1);
    expect(await sample('gateway_function_invocation_started{function_name="pair"}')).toBe(1);
  });
});

test('invocations that shared a load are each cold starts', async () => {
  let arrived = 0;
  const { promise, resolve } = deferred<void>();
  host.pools.answer = async (invocation) => {
    arrived++;
    if (arrived === 3) resolve();
    await promise;
    return {
      ...echo(invocation),
      coldStart: true,
      timings: { queueMs: 0, loadMs: 40, preprocessMs: 0, inferMs: 1, postprocessMs: 0 },
    };
  };
  await Promise.all([infer(), infer(), infer()]);
  expect(await sample('turntable_cold_starts_total{function="pair",plan="cpu"}')).toBe(3);
  expect(await sample('modelmesh_cache_miss_milliseconds_count')).toBe(3);
});

test('calls over HTTP are counted by function and status, unknown functions not at all', async () => {
  await infer();
  await infer();
  failWith('queue-full');
  await infer();
  await (await fetch(`${host.url}/function/unheard-of`, { method: 'POST' })).arrayBuffer();
  expect(await sample('gateway_function_invocation_total{function_name="pair",code="200"}')).toBe(2);
  expect(await sample('gateway_function_invocation_total{function_name="pair",code="503"}')).toBe(1);
  expect(await sample('gateway_functions_seconds_count{function_name="pair",code="200"}')).toBe(2);
  expect(await scrape()).not.toContain('unheard-of');
});

test('a call over HTTP has begun even if it is refused, and one that has begun ends', async () => {
  const begun = 'gateway_function_invocation_started{function_name="pair"}';
  host.lifecycle.phase = 'draining';
  expect(await infer()).toBe(503);
  expect(await sample(begun)).toBe(1);
  host.lifecycle.phase = 'ready';
  await (await fetch(`${host.url}/function/pair`)).arrayBuffer();
  await infer();
  expect(await sample(begun)).toBe(3);
  const ended = [...(await scrape()).matchAll(/^gateway_function_invocation_total\{.*\} (\d+)$/gm)];
  expect(ended.reduce((sum, [, count]) => sum + Number(count), 0)).toBe(3);
});

test('histograms add up over the versions of a function', async () => {
  host.store.put(functionVersion('pair', { version: '2' }));
  await infer();
  const body = JSON.stringify({ input: [[1, 2]] });
  await (await fetch(`${host.url}/function/pair/versions/1`, { method: 'POST', body })).arrayBuffer();
  expect(await sample('turntable_total_seconds_count{function="pair"}')).toBe(2);
  expect(await sample('turntable_inference_seconds_bucket{function="pair",le="0.0025"}')).toBe(2);
  expect(await sample('turntable_inference_seconds_bucket{function="pair",le="0.001"}')).toBe(0);
  expect(await sample('turntable_inference_seconds_bucket{function="pair",le="+Inf"}')).toBe(2);
});

test("a pool's state is shown without counting as use", async () => {
  await (await fetch(`${host.url}/v2/repository/models/pair/load`, { method: 'POST' })).arrayBuffer();
  const uses = host.pools.invocations.length + host.pools.loads.length;
  expect(await sample('nv_inference_pending_request_count{model="pair",version="1"}')).toBe(3);
  expect(await sample('modelmesh_models_loaded_total')).toBe(1);
  expect(await sample('modelmesh_models_managed_total')).toBe(1);
  expect(await sample('modelmesh_instance_used_bytes')).toBe(1000);
  expect(await sample('modelmesh_instance_capacity_bytes')).toBe(8e9);
  expect(await scrape()).toContain(
    'turntable_pool_configuration_info{function="pair",version="1",instances="1",threads="1",batch="4"} 1',
  );
  expect(host.pools.invocations.length + host.pools.loads.length).toBe(uses);
});

test('the series of a removed version end, those of its function with the last version', async () => {
  host.store.put(functionVersion('pair', { version: '2' }));
  await infer();
  await host.store.remove('pair', '2');
  const one = await scrape();
  expect(one).not.toContain('version="2"');
  expect(one).toContain('function_name="pair"');
  await host.store.remove('pair', '1');
  expect(await scrape()).not.toContain('"pair"');
});

test('evictions are counted with their cause', async () => {
  host.statistics.evicted(host.statistics.of(functionVersion('pair')), 'idle', 5000);
  expect(await sample('turntable_evictions_total{function="pair",cause="idle"}')).toBe(1);
  expect(await sample('modelmesh_age_at_eviction_milliseconds_sum')).toBe(5000);
});

test('the process and its event loop are measured, and there are no series for missing GPUs or a missing queue', async () => {
  const text = await scrape();
  expect(text).toMatch(/^process_resident_memory_bytes \d+/m);
  expect(text).toMatch(/^turntable_event_loop_delay_seconds\{statistic="p99"\} [\d.e-]+$/m);
  expect(text).not.toMatch(/nv_gpu|pinned_memory_pool|gpu_uuid|redis/i);
  expect((await fetch(`${host.url}/metrics`)).headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
});

test('a blocked event loop shows as its delay', async () => {
  await scrape();
  // A tick of the sampler's timer before and after the block.
  await new Promise((resolve) => setTimeout(resolve, 20));
  const until = performance.now() + 120;
  while (performance.now() < until);
  await new Promise((resolve) => setTimeout(resolve, 20));
  const text = await scrape();
  const [, longest] = /^turntable_event_loop_delay_seconds\{statistic="max"\} (\S+)$/m.exec(text) ?? [];
  expect(Number(longest)).toBeGreaterThan(0.1);
});

test('the exposition is well formed: every series has a type, and no series occurs twice', async () => {
  await infer();
  failWith('queue-full');
  await infer();
  const lines = (await scrape()).split('\n').filter((line) => line !== '');
  const types = new Map(
    lines.flatMap((line) => {
      const [, name = '', type = ''] = /^# TYPE (\S+) (\S+)$/.exec(line) ?? [];
      return name === '' ? [] : [[name, type] as const];
    }),
  );
  const series = lines.filter((line) => !line.startsWith('#'));
  const names = series.map((line) => line.slice(0, line.lastIndexOf(' ')));
  expect(new Set(names).size).toBe(names.length);
  const untyped = names.filter((name) => {
    const bare = name.replace(/\{.*/, '');
    return !types.has(bare) && types.get(bare.replace(/_(bucket|sum|count)$/, '')) === undefined;
  });
  expect(untyped).toEqual([]);
  expect(series.filter((line) => !/^[a-z_][a-z0-9_]*(\{[^}]*\})? (-?[\d.e+-]+|[+-]Inf|NaN)$/i.test(line))).toEqual([]);
});

test("names, units and help follow Prometheus' rules, except inherited names", async () => {
  await infer();
  failWith('queue-full');
  await infer();
  const text = await scrape();
  const problems = promlint(text);
  expect(problems.filter((problem) => !inherited.test(problem))).toEqual([]);
  expect(problems).toContain('nv_inference_count counter metrics should have "_total" suffix');
  expect(promtool(text) ?? problems).toEqual(problems);
});

test("the linter distinguishes promtool's rules", () => {
  const families = [
    ['xa_calls', 'counter', ''],
    ['xb_total', 'gauge', ''],
    ['xc_count', 'gauge', ''],
    ['xd_milliseconds', 'gauge', ''],
    ['xe_ms', 'gauge', ''],
    ['xfSize', 'gauge', ''],
    ['xg_gauge', 'gauge', ''],
    ['xh_bytes', 'gauge', '{quantile="0.5"}'],
    ['xi_bytes', 'gauge', '{le="0.5"}'],
    ['xj_bytes', 'gauge', '{aName="x"}'],
    ['xk_seconds', 'histogram', '_count'],
    ['xl_calls_total', 'counter', ''],
  ];
  const text = families.map(([name, type, end]) => `# HELP ${name} Help\n# TYPE ${name} ${type}\n${name}${end} 1\n`);
  const found = promlint(text.join('') + 'xm_bytes 1\n');
  expect(found.map((problem) => problem[1]).join('')).toBe('abcdefghijm');
});

test('a histogram puts a value on a bound below it', () => {
  const histogram = new Histogram([1, 2]);
  for (const value of [0.5, 1, 1.5, 2, 3]) histogram.observe(value);
  expect([histogram.counts, histogram.count, histogram.sum]).toEqual([[2, 2], 5, 8]);
});
