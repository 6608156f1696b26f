import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { dataTypes } from '../tensor/index.ts';
import { inferRequest, parseLiveInputs, type LiveRequest } from './live-inputs.ts';
import { metricsWatch } from './live-watch.ts';
import { placementOf, runLive, type LiveOptions } from './live.ts';
import type { EvictionRecord, Outcome, PlanChangeRecord, Trace } from './types.ts';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

async function listen(handle: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  server = createServer(handle);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const traceOf = (...arrivals: readonly number[]): Trace => ({
  functionNames: ['a', 'b'],
  invocations: () => arrivals.map((arrivalMs, index) => ({ arrivalMs, functionIndex: index % 2 })),
});

const request: LiveRequest = { path: '/v2/models/a/infer', headers: { 'x-own': 'yes' }, body: Buffer.from('input') };

async function run(
  url: string,
  trace: Trace,
  options: Partial<LiveOptions> = {},
): Promise<{ outcomes: Outcome[]; busy: number[][]; sent: number }> {
  const outcomes: Outcome[] = [];
  const busy: number[][] = [];
  const { sent } = await runLive(trace, {
    url,
    requestOf: () => request,
    sloMsOf: (index) => 100 + index,
    observer: {
      outcome: (outcome) => outcomes.push(outcome),
      eviction: () => undefined,
      busy: (...interval) => busy.push(interval),
    },
    ...options,
  });
  return { outcomes, busy, sent };
}

describe('live replay', () => {
  it('live replay is an open loop: every request is sent although none has been answered', async () => {
    const waiting: ServerResponse[] = [];
    const url = await listen((_, response) => {
      waiting.push(response);
      // Nothing is answered until the last request has arrived.
      if (waiting.length === 20) for (const each of waiting) each.end('{}');
    });
    const arrivals = Array.from({ length: 20 }, (_, index) => index * 5);
    const { outcomes, sent } = await run(url, traceOf(...arrivals));
    expect(sent).toBe(20);
    expect(outcomes.map(({ arrivalMs }) => arrivalMs).toSorted((a, b) => a - b)).toEqual(arrivals);
    for (const { endMs } of outcomes) expect(endMs).toBeGreaterThanOrEqual(95);
  });

  it('live replay sends the given requests to the given host', async () => {
    const seen: unknown[] = [];
    const url = await listen((incoming, response) => {
      const { method, headers } = incoming;
      let body = '';
      incoming.setEncoding('utf8').on('data', (text: string) => {
        body += text;
      });
      incoming.on('end', () => {
        seen.push([method, incoming.url, headers['x-own'], headers['authorization'], body]);
        response.end();
      });
    });
    await run(`${url}/behind/`, traceOf(0), { headers: { authorization: 'Bearer key' } });
    expect(seen).toEqual([['POST', '/behind/v2/models/a/infer', 'yes', 'Bearer key', 'input']]);
  });

  it('live replay reports where each answer came from, how long it waited and its SLO', async () => {
    const url = await listen((_, response) => {
      response.setHeader('x-turntable-placement', 'gpu1 cold pt+dha');
      response.setHeader('x-queue-time', '3.5');
      response.setHeader('x-inference-time', '0.25');
      response.end('{}');
    });
    const { outcomes, busy } = await run(url, traceOf(0, 1));
    expect(outcomes.toSorted((a, b) => a.arrivalMs - b.arrivalMs)).toMatchObject([
      {
        functionIndex: 0,
        arrivalMs: 0,
        queueMs: 3.5,
        sloMs: 100,
        placement: { kind: 'gpu', gpu: 1, residency: 'cold' },
      },
      { functionIndex: 1, arrivalMs: 1, sloMs: 101 },
    ]);
    expect(busy).toHaveLength(2);
    for (const [gpu, fromMs, toMs] of busy) {
      expect(gpu).toBe(1);
      expect(toMs! - fromMs!).toBeCloseTo(0.25, 6);
    }
  });

  it.each([
    [503, 'shed'],
    [504, 'shed'],
    [429, 'shed'],
  ])('live replay counts HTTP %i as %s', async (status, kind) => {
    const url = await listen((_, response) => response.writeHead(status).end('{"error":"full"}'));
    const { outcomes } = await run(url, traceOf(0));
    expect(outcomes).toMatchObject([{ placement: { kind } }]);
  });

  it("live replay counts another status as failed, in the host's own words", async () => {
    const url = await listen((_, response) => response.writeHead(400).end('{"error":"input x is missing"}'));
    const { outcomes } = await run(url, traceOf(0));
    expect(outcomes).toMatchObject([{ placement: { kind: 'failed', reason: 'HTTP 400: input x is missing' } }]);
  });

  it('live replay counts a connection that ends, and an answer that does not come, as failed, each once', async () => {
    let count = 0;
    const url = await listen((incoming, response) => {
      count++;
      if (count === 1) incoming.socket.destroy();
      else if (count === 2) response.writeHead(200).write('half');
    });
    const { outcomes } = await run(url, traceOf(0, 30, 60), { timeoutMs: 200 });
    const reasons = outcomes.map(({ placement }) => (placement.kind === 'failed' ? placement.reason : placement.kind));
    expect(reasons.toSorted()).toEqual(['ECONNRESET', 'no answer within 0.2 s', 'no answer within 0.2 s']);
  });

  it('fires faster than the trace when told to, on the clock of the replay', async () => {
    const url = await listen((_, response) => response.end('{}'));
    const { outcomes } = await run(url, traceOf(0, 1000), { speed: 20 });
    expect(outcomes.map(({ arrivalMs }) => arrivalMs)).toEqual([0, 50]);
  });

  it('live replay stops sending when it is interrupted, and waits for what it sent', async () => {
    const interrupt = new AbortController();
    const url = await listen((_, response) => {
      interrupt.abort();
      setImmediate(() => response.end('{}'));
    });
    const { outcomes, sent } = await run(url, traceOf(0, 60_000), { signal: interrupt.signal });
    expect(sent).toBe(1);
    expect(outcomes).toHaveLength(1);
  });

  it.each([
    ['gpu0 warm', 'false', { kind: 'gpu', gpu: 0, residency: 'warm' }],
    ['gpu0 from disk dha', 'true', { kind: 'gpu', gpu: 0, residency: 'disk' }],
    ['gpu12 partial interleave', 'false', { kind: 'gpu', gpu: 12, residency: 'partial' }],
    ['cpu pool cold', 'true', { kind: 'cpu', coldStart: true }],
    ['cpu pool overflow: gpu would finish in 180 ms', 'false', { kind: 'cpu', coldStart: false }],
    ['', '', { kind: 'cpu', coldStart: false }],
  ])('live replay reads the placement %j', (text, cold, expected) => {
    expect(placementOf(text, cold)).toEqual(expected);
  });
});

describe('requests made from metadata', () => {
  it('requests made from metadata have the stated inputs in binary form, open sizes filled in', () => {
    const inputs = parseLiveInputs(
      {
        inputs: [
          { name: 'ids', datatype: 'INT64', shape: [-1, -1] },
          { name: 'text', datatype: 'BYTES', shape: [2] },
          { name: 'scale', datatype: 'FP32', shape: [] },
        ],
      },
      'm',
    );
    const { path, headers, body } = inferRequest('a/b', inputs, { seed: 1, varyingSize: 5 });
    expect(path).toBe('/v2/models/a%2Fb/infer');
    const headerBytes = Number(headers['inference-header-content-length']);
    const header = JSON.parse(Buffer.from(body.subarray(0, headerBytes)).toString()) as {
      inputs: { name: string; shape: number[]; parameters: { binary_data_size: number } }[];
    };
    expect(header.inputs).toEqual([
      { name: 'ids', datatype: 'INT64', shape: [1, 5], parameters: { binary_data_size: 40 } },
      { name: 'text', datatype: 'BYTES', shape: [2], parameters: { binary_data_size: 26 } },
      { name: 'scale', datatype: 'FP32', shape: [], parameters: { binary_data_size: 4 } },
    ]);
    expect(body.byteLength).toBe(headerBytes + 70);
    const ids = new BigInt64Array(Uint8Array.from(body.subarray(headerBytes, headerBytes + 40)).buffer);
    for (const id of ids) expect(id === 0n || id === 1n).toBe(true);
  });

  it('requests made from metadata are of the stated length for every datatype, and the same for a seed', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...dataTypes),
        fc.array(fc.nat(4), { maxLength: 3 }),
        fc.nat(),
        (datatype, shape, seed) => {
          const inputs = [{ name: 'x', datatype, shape }];
          const made = inferRequest('m', inputs, { seed, varyingSize: 2 });
          const headerBytes = Number(made.headers['inference-header-content-length']);
          const { inputs: described } = JSON.parse(Buffer.from(made.body.subarray(0, headerBytes)).toString()) as {
            inputs: { parameters: { binary_data_size: number } }[];
          };
          expect(made.body.byteLength - headerBytes).toBe(described[0]!.parameters.binary_data_size);
          expect(inferRequest('m', inputs, { seed, varyingSize: 2 })).toEqual(made);
        },
      ),
    );
  });

  it('cannot be made from metadata without inputs', () => {
    expect(() => parseLiveInputs({}, 'm')).toThrow(/the metadata of 'm' lists no inputs/);
    expect(() => parseLiveInputs({ inputs: [{ name: 'x', datatype: 'FP8', shape: [1] }] }, 'm')).toThrow(/datatype/);
    expect(() => parseLiveInputs({ inputs: [{ name: 'x', datatype: 'FP32', shape: ['n'] }] }, 'm')).toThrow(/no shape/);
  });
});

const metrics = (count: number): string =>
  [
    '# TYPE turntable_evictions_total counter',
    `turntable_evictions_total{function="a",cause="idle"} ${count}`,
    'turntable_evictions_total{function="o\\"dd",cause="capacity",gpu="1"} 2',
    `turntable_plan_changes_total{function="a",direction="smaller"} ${count}`,
    'turntable_plan_changes_total{function="o\\"dd",direction="larger"} 2',
    'turntable_evictions_total_created{function="a",cause="idle"} 99',
  ].join('\n');

describe('evictions and changes of plan of a live host', () => {
  it('evictions and changes of plan of a live host are those since the reading before, of functions that the replay calls', () => {
    const told: (EvictionRecord | PlanChangeRecord)[] = [];
    const observer = {
      outcome: () => undefined,
      busy: () => undefined,
      eviction: (record: EvictionRecord) => void told.push(record),
      planChange: (record: PlanChangeRecord) => void told.push(record),
    };
    const watch = metricsWatch(observer, (name) => (name === 'a' ? 7 : undefined));
    watch(metrics(3), 0);
    expect(told).toEqual([]);
    watch(metrics(5), 1000);
    const eviction = { atMs: 1000, from: undefined, functionIndex: 7, bytes: 0, cause: 'idle' };
    const change = { atMs: 1000, functionIndex: 7, direction: 'smaller' };
    expect(told).toEqual([eviction, eviction, change, change]);
  });

  it('evictions and changes of plan of a live host are those of all GPUs, and of functions whose names need quoting', () => {
    const causes: string[] = [];
    const observer = {
      outcome: () => undefined,
      busy: () => undefined,
      eviction: ({ cause }: EvictionRecord) => void causes.push(cause),
    };
    const watch = metricsWatch(observer, (name) => (name === 'o"dd' ? 1 : undefined));
    watch('', 0);
    watch(`${metrics(1)}\nturntable_evictions_total{function="o\\"dd",cause="capacity",gpu="0"} 1`, 1000);
    expect(causes).toEqual(['capacity', 'capacity', 'capacity']);
  });
});
