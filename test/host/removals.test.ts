/** Calls and publications that a removal overtakes. */
import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CpuError, type PoolResult } from '../../src/cpu/index.ts';
import { HostError } from '../../src/host/errors.ts';
import { createGrpcClient } from '../support/grpc-client.ts';
import { writeScaleModel } from '../support/models.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { echo } from './fake-pools.ts';
import { functionVersion } from './fake-store.ts';
import { inferBody, startTestHost, type TestHost } from './test-host.ts';

type Step =
  'call' | 'publish' | 'publish the same number' | 'remove the oldest' | 'remove all' | 'decide one' | 'decide all';

const steps = fc.array(
  fc.constantFrom<Step>(
    'call',
    'call',
    'publish',
    'publish the same number',
    'remove the oldest',
    'remove all',
    'decide one',
    'decide all',
  ),
  { maxLength: 25 },
);
/** What the places say of a version that they no longer have, or whose file is gone. */
const said = fc.constantFrom<() => Error>(
  () => new CpuError('unknown-function', "no function 'race@1' is registered"),
  () => new CpuError('unknown-function', "function 'race@1' was removed"),
  () => new CpuError('model-load-failed', 'no such file: /nowhere/model.onnx'),
  () => new HostError('not-ready', "no place runs function 'race': the function was removed"),
);

describe('with places that answer in any order', () => {
  let host: TestHost;
  beforeAll(async () => {
    host = await startTestHost();
  });
  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  let publications = 0;

  /** Takes the steps, and returns the replies of all calls, with whether the function was ever without a version. */
  async function take(taken: readonly Step[], failure: () => Error): Promise<{ readonly statuses: readonly number[]; readonly wasGone: boolean; readonly removals: number }> {
    const { store, pools } = host;
    const undecided: (() => void)[] = [];
    let isOver = false;
    pools.answer = async (invocation): Promise<Partial<PoolResult>> => {
      const of = publishedOf(invocation.key);
      if (!isOver) await new Promise<void>((resolve) => undecided.push(resolve));
      if (of !== undefined && publishedOf(invocation.key) === of) return echo(invocation);
      throw failure();
    };
    const publishedOf = (key: string): number | undefined => store.versions('race').find((each) => each.key === key)?.publishedAtMs;
    const put = (number: string): void => store.put(functionVersion('race', { version: number, publishedAtMs: ++publications }));
    put('1');
    const replies: Promise<number>[] = [];
    let [wasGone, removals] = [false, 0];
    for (const step of taken) {
      const [oldest] = store.versions('race');
      switch (step) {
        case 'call':
          replies.push(fetch(`${host.url}/v2/models/race/infer`, { method: 'POST', body: JSON.stringify(inferBody) }).then(async (reply) => {
            await reply.arrayBuffer();
            return reply.status;
          }));
          // So that some calls reach their place before the next step, and some do not.
          if (replies.length % 2 === 0) await fetch(`${host.url}/v2`).then((reply) => reply.arrayBuffer());
          break;
        case 'publish':
          put(String(++publications));
          break;
        case 'publish the same number':
          if (oldest !== undefined) await store.remove('race', oldest.version);
          put(oldest?.version ?? '1');
          removals++;
          wasGone ||= store.versions('race').length === 1;
          break;
        case 'remove the oldest':
        case 'remove all':
          if (oldest === undefined) break;
          removals++;
          await store.remove('race', step === 'remove all' ? undefined : oldest.version);
          wasGone ||= store.versions('race').length === 0;
          break;
        case 'decide one':
          undecided.shift()?.();
          break;
        case 'decide all':
          for (const decide of undecided.splice(0)) decide();
      }
    }
    isOver = true;
    for (const decide of undecided.splice(0)) decide();
    const statuses = await Promise.all(replies);
    if (store.versions('race').length > 0) await store.remove('race', undefined);
    return { statuses, wasGone, removals };
  } // prettier-ignore

  test('a call is answered or gets 404, and is answered if the function always had a version', async () => {
    await fc.assert(
      fc.asyncProperty(steps, said, async (taken, what) => {
        const { statuses, wasGone, removals } = await take(taken, what);
        for (const status of statuses) expect([200, 404]).toContain(status);
        const mayFail = wasGone || removals > 3;
        expect(mayFail || !statuses.includes(404)).toBe(true);
      }),
    );
  });
});

describe('on a real host', () => {
  let host: ReluHost;
  let models: readonly Buffer[];
  beforeAll(async () => {
    host = await startReluHost([], { flags: { 'grpc.port': '0' } });
    models = await Promise.all([1, 2, 3].map(async (factor) => await readFile(await writeScaleModel(host.folder, factor))));
  }); // prettier-ignore
  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  interface Told {
    readonly status: number;
    readonly text: string;
  }

  async function send(method: string, path: string, body?: string | Uint8Array): Promise<Told> {
    const reply = await fetch(host.url + path, { method, ...(body === undefined ? {} : { body }) });
    return { status: reply.status, text: await reply.text() };
  }

  const publish = async (round: number): Promise<Told> =>
    await send('PUT', '/functions/race', models[round % models.length]);

  test('calls beside publications and deletions are answered or get 404, over HTTP and gRPC', async () => {
    const body = JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }] });
    using grpc = createGrpcClient(`127.0.0.1:${host.grpcPort}`);
    const rounds = { left: 20 };
    const told: Told[] = [];
    const overHttp = async (): Promise<void> => {
      while (rounds.left > 0) told.push(await send('POST', '/v2/models/race/infer', body));
    };
    const overGrpc = async (): Promise<void> => {
      while (rounds.left > 0) {
        const reply = grpc.infer('race', [1, 2, 3, 4]);
        // 5 is gRPC's NOT_FOUND.
        told.push(
          await reply.then(
            () => ({ status: 200, text: '' }),
            (error: { code: number; message: string }) => ({
              status: error.code === 5 ? 404 : error.code,
              text: error.message,
            }),
          ),
        );
      }
    };
    const callers = [overHttp(), overHttp(), overHttp(), overGrpc()];
    for (; rounds.left > 0; rounds.left--) {
      await publish(rounds.left);
      // The round ends when a few calls have run meanwhile, or at once.
      const until = told.length + (rounds.left % 4) * 3;
      while (told.length < until) await send('GET', '/v2');
      await send('DELETE', '/functions/race');
    }
    await Promise.all(callers);
    expect(told.filter(({ status }) => status !== 200 && status !== 404)).toEqual([]);
    expect(told.filter(({ status }) => status === 200).length).toBeGreaterThan(0);
  });

  test('a publication that a deletion overtakes says that it was accepted and then deleted', async () => {
    const puts: Told[] = [];
    for (let round = 0; round < 15; round++) {
      await publish(0);
      const [second] = await Promise.all([publish(1), remover(round)]);
      puts.push(second);
      await send('DELETE', '/functions/race');
    }
    for (const { status, text } of puts) {
      if (status === 201) continue;
      expect([status, text]).toEqual([404, expect.stringMatching(/^\{"error":"version \d of function 'race' was published, and then deleted by another request before it served"\}/)]);
    }
  }); // prettier-ignore

  /** Deletes the function as soon as it has two versions, or one round in three at once. */
  async function remover(round: number): Promise<void> {
    if (round % 3 > 0) {
      for (;;) {
        const { status, text } = await send('GET', '/functions/race/versions');
        if (status !== 200 || (JSON.parse(text) as { versions: object[] }).versions.length > 1) break;
      }
    }
    await send('DELETE', '/functions/race');
  }
});
