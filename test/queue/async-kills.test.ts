/**
 * What an acceptance promises, beside kills of real processes: hosts, a worker and Redis die while they have calls. Each
 * accepted call gets one reply and its callback, and lists and metrics say what BullMQ's board says.
 */
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { Queue } from 'bullmq';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { RedisLink } from '../../src/queue/redis.ts';
import { serve, startWorkerCommand, type ServingHost } from '../cli/command.ts';
import { patient } from '../support/fleet-calls.ts';
import { writeReluModel } from '../support/models.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { waitLimitMs } from '../time-limits.ts';

/** So long a run of the slow function takes at the host: the worker's core is then worth a start. */
const slowMs = 400;

/** A run asks the test whether it may go on, and says in which process it is. */
const gatedHandler = (gate: string): string => `
  export const preprocess = async (request) => {
    await fetch('${gate}/' + process.ppid);
    return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: JSON.parse(request.text()) }];
  };
  export const postprocess = (tensors) => new Response(JSON.stringify(Array.from(tensors[0].data)));`;

interface Listing {
  readonly waiting: number;
  readonly running: number;
  readonly calls: readonly { readonly id: string; readonly status: string; readonly function_status: number }[];
}

const idsOf = (from: number, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `c${from + index}`);
const answerTo = (id: string): string => `[${id.slice(1)},0,0,1]`;
const listAt = async (host: ServingHost): Promise<Listing> =>
  (await (await fetch(`${host.url}/async-function?limit=1000`)).json()) as Listing;
const finishedAt = async (host: ServingHost): Promise<number> => {
  const metrics = await (await fetch(`${host.url}/metrics`)).text();
  return Number(/^turntable_async_calls_total\{outcome="finished"\} (\d+)$/m.exec(metrics)?.[1]);
};

describe.skipIf(redisMissing !== undefined)('accepted calls', () => {
  let folder: string;
  let redis: RedisServer;
  let link: RedisLink;
  let board: Record<'calls' | 'callbacks', Queue>;
  const servers: Server[] = [];
  const hosts: ServingHost[] = [];
  /** Bodies that the receiver of callbacks got, by call. */
  const calledBack = new Map<string, string[]>();
  /** Runs that wait at the gate, with the process of their host or worker. */
  let held: { readonly pid: number; readonly pass: () => void }[] = [];
  let isOpen = false;
  /** Where a run takes its time instead of waiting at the gate. */
  let slowAt: number | undefined;

  const listen = async (take: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> => {
    const server = createServer(take).listen(0, '127.0.0.1');
    servers.push(server);
    await once(server, 'listening');
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  };
  const open = (): void => {
    isOpen = true;
    for (const { pass } of held.splice(0)) pass();
  };
  const heldBy = (pid: number | undefined): number => held.filter((run) => run.pid === pid).length;
  const startHost = async (name: string): Promise<ServingHost> => {
    const paths = ['--data-dir', join(folder, name), '--functions-dir', join(folder, 'functions')];
    const words = ['--store', join(folder, 'store'), '--redis', redis.url, '--cpu-cores', '1', '--gpu-use', 'off'];
    const asynchronous = ['--async-callback-allow', '127.0.0.1', '--async-concurrency', '4'];
    const host = await serve([...paths, ...words, ...asynchronous]);
    hosts.push(host);
    return host;
  };
  const take = async (request: IncomingMessage): Promise<void> => {
    const id = String(request.headers['x-call-id']);
    const body = await text(request).catch(() => undefined);
    if (body !== undefined) calledBack.set(id, [...(calledBack.get(id) ?? []), body]);
  };
  let callbackUrl: string;
  const accept = async (host: ServingHost, id: string): Promise<number> => {
    const headers = { 'X-Call-Id': id, 'X-Callback-Url': callbackUrl };
    const body = `[${id.slice(1)},-1,0,1]`;
    const { status } = await fetch(`${host.url}/async-function/gated`, { method: 'POST', headers, body });
    return status;
  };
  /** Every one of these has its reply and its callback, with the right body. */
  const allAnswered = async (host: ServingHost, ids: readonly string[]): Promise<void> => {
    await vi.waitFor(() => expect(ids.filter((id) => !calledBack.has(id))).toEqual([]), patient);
    for (const id of ids) {
      const reply = await fetch(`${host.url}/async-function/${id}`);
      expect(`${reply.headers.get('x-call-status')} ${await reply.text()}`).toBe(`finished ${answerTo(id)}`);
    }
  };

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-async-kills-'));
    const gate = await listen((request, response) => {
      const run = { pid: Number(request.url!.slice(1)), pass: () => void response.end() };
      if (isOpen) run.pass();
      else if (run.pid === slowAt) setTimeout(run.pass, slowMs);
      else held.push(run);
      response.once('close', () => (held = held.filter((each) => each !== run)));
    });
    callbackUrl = await listen((request, response) => {
      // A host that is killed while it sends sends again.
      void take(request).finally(() => response.end());
    });
    const place = join(folder, 'functions', 'gated');
    await mkdir(place, { recursive: true });
    await writeReluModel(place);
    await writeFile(join(place, 'handler.mjs'), gatedHandler(gate));
    const settings = { model: 'relu.onnx', handler: 'handler.mjs', timeouts: { handler: `${waitLimitMs}ms` } };
    await writeFile(join(place, 'function.json'), JSON.stringify(settings));
    redis = await RedisServer.start({ durable: true });
    link = new RedisLink({ url: redis.url, prefix: 'turntable' });
    await link.ready(waitLimitMs);
    const options = { connection: link.commands, prefix: link.key('queues') };
    board = { calls: new Queue('calls', options), callbacks: new Queue('callbacks', options) };
    for (const queue of Object.values(board)) queue.on('error', () => undefined);
  });

  afterAll(async () => {
    open();
    for (const host of hosts) await host.end('SIGKILL');
    await Promise.all(Object.values(board ?? {}).map((queue) => queue.close()));
    link?.close();
    await redis?.[Symbol.asyncDispose]();
    for (const server of servers) server.close();
    await rm(folder, { recursive: true, force: true });
  });

  test('of a host that is killed run again at another, once each has its reply', async () => {
    const [dying, living] = [await startHost('a'), await startHost('b')];
    const ids = idsOf(0, 12);
    for (const [index, id] of ids.entries()) expect(await accept(index % 2 === 0 ? dying : living, id)).toBe(202);
    await vi.waitFor(() => {
      expect(heldBy(dying.child.pid)).toBeGreaterThan(0);
      expect(heldBy(living.child.pid)).toBeGreaterThan(0);
    }, patient);
    await dying.end('SIGKILL');
    open();
    await allAnswered(living, ids);
    // The host that died had sent none.
    for (const id of ids) expect(calledBack.get(id)).toEqual([answerTo(id)]);
  });

  test('of a Redis that is killed while they run are answered once it is back', async () => {
    const living = hosts[1]!;
    isOpen = false;
    const ids = idsOf(12, 8);
    for (const id of ids) expect(await accept(living, id)).toBe(202);
    await vi.waitFor(() => expect(heldBy(living.child.pid)).toBeGreaterThan(0), patient);
    await redis.kill();
    open();
    expect(await accept(living, 'c20')).toBe(503);
    await redis.start();
    await vi.waitFor(async () => expect(await accept(living, 'c20')).toBe(202), patient);
    // Accepted once, however often it was sent.
    expect(await accept(living, ids[0]!)).toBe(202);
    await allAnswered(living, [...ids, 'c20']);
  });

  test('at a worker that is killed run elsewhere', async () => {
    const living = hosts[1]!;
    isOpen = false;
    slowAt = living.child.pid;
    const worker = await startWorkerCommand([
      '--redis',
      redis.url,
      '--store',
      join(folder, 'store'),
      '--cores',
      '1',
      '--data',
      join(folder, 'w'),
    ]);
    try {
      const ids = idsOf(21, 16);
      for (const id of ids) expect(await accept(living, id)).toBe(202);
      await vi.waitFor(() => expect(heldBy(worker.pid)).toBeGreaterThan(0), patient);
      worker.kill('SIGKILL');
      slowAt = undefined;
      open();
      await allAnswered(living, ids);
    } finally {
      worker.kill('SIGKILL');
    }
  });

  test("are counted by lists and metrics as BullMQ's own board counts them", async () => {
    isOpen = false;
    const all = [hosts[1]!, await startHost('a')];
    await vi.waitFor(async () => {
      expect(await board.calls.getJobCounts('waiting', 'active', 'delayed')).toEqual({
        waiting: 0,
        active: 0,
        delayed: 0,
      });
    }, patient);
    const before = await board.calls.getJobCounts('completed', 'failed');
    const finishedBefore = (await Promise.all(all.map(finishedAt))).reduce((sum, count) => sum + count, 0);
    const ids = Array.from({ length: 12 }, (_, index) => `c${1000 + index}`);
    for (const [index, id] of ids.entries()) expect(await accept(all[index % 2]!, id)).toBe(202);
    // Each host runs four at once, and none goes on.
    await vi.waitFor(async () => expect((await listAt(all[0]!)).running).toBe(8), patient);
    const counts = await board.calls.getJobCounts('waiting', 'active', 'completed', 'failed');
    expect(counts).toEqual({ waiting: 4, active: 8, ...before });
    for (const host of all) {
      const { waiting, running, calls } = await listAt(host);
      expect({ waiting, running }).toEqual({ waiting: 4, running: 8 });
      const ofState = (state: string): number => calls.filter(({ status }) => status === state).length;
      expect(['waiting', 'running', 'finished'].map(ofState)).toEqual([4, 8, before['completed']]);
    }
    open();
    await allAnswered(all[0]!, ids);
    await vi.waitFor(async () => {
      const { completed, failed } = await board.calls.getJobCounts('completed', 'failed');
      expect({ completed, failed }).toEqual({ completed: before['completed']! + ids.length, failed: 0 });
      // A callback that was sent is recorded a moment later.
      expect(await board.callbacks.getJobCounts('completed', 'active', 'failed')).toEqual({
        completed,
        active: 0,
        failed: 0,
      });
    }, patient);
    const finished = (await Promise.all(all.map(finishedAt))).reduce((sum, count) => sum + count, 0);
    expect(finished - finishedBefore).toBe(ids.length);
    const { calls } = await listAt(all[1]!);
    expect(calls.every((each) => each.status === 'finished' && each.function_status === 200)).toBe(true);
    expect(calls).toHaveLength(before['completed']! + ids.length);
  });
});
