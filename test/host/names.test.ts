/** Function names, at every door that takes or shows one. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sumModel } from '../../bench/chaos/models.ts';
import { createGrpcClient, type GrpcTestClient } from '../support/grpc-client.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { turntable } from '../cli/command.ts';

let host: ReluHost;
let grpc: GrpcTestClient;
beforeAll(async () => {
  host = await startReluHost(['relu'], { flags: { 'grpc.port': '0', 'gpu.use': 'off' } });
  grpc = createGrpcClient(`127.0.0.1:${host.grpcPort}`);
});
afterAll(async () => {
  grpc?.[Symbol.dispose]();
  await host?.[Symbol.asyncDispose]();
});

const letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'.split('');
const name = fc
  .tuple(
    fc.constantFrom(...letters),
    fc.string({ unit: fc.constantFrom(...letters, '.', '-'), maxLength: 127, size: 'max' }),
  )
  .map(([first, rest]) => first + rest)
  .filter((text) => text !== 'relu');

const publish = async (asked: string): Promise<Response> =>
  await fetch(`${host.url}/functions/${encodeURIComponent(asked)}`, {
    method: 'PUT',
    body: Buffer.from(sumModel(1)),
  });

const names = async (): Promise<string[]> => {
  const listed = (await (await fetch(`${host.url}/functions`)).json()) as { functions: { name: string }[] };
  return listed.functions.map((each) => each.name);
};

const called = async (path: string, body: object): Promise<unknown> => {
  const reply = await fetch(host.url + path, { method: 'POST', body: JSON.stringify(body) });
  return { status: reply.status, body: await reply.json() };
};

const index = async (): Promise<{ name: string; state: string }[]> =>
  (await (await fetch(`${host.url}/v2/repository/index`, { method: 'POST' })).json()) as never;

async function livesUnder(asked: string): Promise<void> {
  expect((await publish(asked)).status).toBe(201);
  expect(await names()).toContain(asked);
  expect((await index()).find((each) => each.name === asked)?.state).toBe('READY');
  expect(await called(`/function/${asked}`, { input: [[1]] })).toEqual({ status: 200, body: { output: [[2]] } });
  const tensor = { name: 'x', datatype: 'FP32', shape: [1, 1], data: [3] };
  expect(await called(`/v2/models/${asked}/infer`, { inputs: [tensor] })).toMatchObject({
    status: 200,
    body: { model_name: asked, outputs: [{ data: [4] }] },
  });
  expect((await grpc.infer(asked, [5])).output).toEqual([6]);
  const metrics = await (await fetch(`${host.url}/metrics`)).text();
  expect(metrics).toContain(`gateway_function_invocation_total{function_name="${asked}",code="200"} 3`);
  expect((await fetch(`${host.url}/functions/${asked}`, { method: 'DELETE' })).status).toBe(204);
  expect((await called(`/function/${asked}`, { input: [[1]] })) as { status: number }).toMatchObject({ status: 404 });
  expect(await names()).not.toContain(asked);
}

describe('a function lives under its name over HTTP and gRPC, in metrics and lists', () => {
  test.each([
    'BERT_FP16',
    '_hidden',
    '9',
    'a.',
    'v1..2',
    '-a'.slice(1) + '-',
    '__proto__',
    'constructor',
    'X'.repeat(128),
  ])('%s', livesUnder);

  test('any that is allowed', async () => {
    await fc.assert(fc.asyncProperty(name, livesUnder), { numRuns: 15 });
  });
});

test('the command line takes and shows a name with capitals', async () => {
  expect((await publish('Cased_Name')).status).toBe(201);
  const ps = await turntable(['ps', '--url', host.url]);
  expect(ps.stdout).toContain('Cased_Name');
  const removed = await turntable(['rm', 'Cased_Name', '--url', host.url]);
  expect([removed.exitCode, await names()]).toEqual([0, ['relu']]);
});

test('a name with other letters is refused with what is allowed', async () => {
  const bad = fc
    .string({ unit: 'binary', minLength: 1, maxLength: 140 })
    .filter((text) => !/^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/.test(text) && !/^\.{1,2}$/.test(text));
  await fc.assert(
    fc.asyncProperty(bad, async (asked) => {
      const reply = await publish(asked);
      expect({ status: reply.status, ...((await reply.json()) as object) }).toEqual({
        status: 400,
        error: expect.stringContaining("is not a function name: 1 to 128 letters, digits, '.', '_' or '-'") as string,
      });
    }),
    { numRuns: 30 },
  );
});

test('names that differ in capitals only are functions of their own, also when they are published at once', async () => {
  const spellings = ['twin', 'Twin', 'TWIN', 'tWIN'];
  const replies = await Promise.all(spellings.map(publish));
  expect(replies.map((reply) => reply.status)).toEqual([201, 201, 201, 201]);
  expect((await called('/function/TwIn', { input: [[1]] })) as object).toMatchObject({ status: 404 });
  await fetch(`${host.url}/functions/Twin`, { method: 'DELETE' });
  expect((await names()).toSorted()).toEqual(['TWIN', 'relu', 'tWIN', 'twin']);
  for (const name of ['twin', 'TWIN', 'tWIN']) await fetch(`${host.url}/functions/${name}`, { method: 'DELETE' });
});
