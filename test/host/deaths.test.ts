/** A function that kills its processes, on a real host: what callers and operators are told, and what ends the stop. */
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { credentials } from '@grpc/grpc-js';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { placedText } from '../../src/cli/ps.ts';
import { loadProtos, serviceOf } from '../../src/host/grpc/index.ts';
import { ElementType, GraphBuilder, serializeModel } from '../../src/onnx/index.ts';
import { writeScaleModel } from '../support/models.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

let host: ReluHost;
let pids: string;

/** Kills its process where the text says so, and notes each process that began to serve it. */
const handlerOf = (file: string): string => `
import { appendFileSync } from 'node:fs';
export async function preprocess(request) {
  appendFileSync(${JSON.stringify(file)}, process.pid + '\\n');
  if (request.text() === 'kill') { process.kill(process.pid, 'SIGSEGV'); await new Promise(() => undefined); }
  return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
}
export function postprocess([{ data }]) { return String(data[0]); }
`;

beforeAll(async () => {
  host = await startReluHost(['calm'], {
    flags: { 'grpc.port': '0', 'cpu.cores': '1' },
    prepare: async (functions) => {
      pids = join(functions, '..', 'pids');
      const folder = join(functions, 'kills');
      await mkdir(folder, { recursive: true });
      await writeScaleModel(folder, 1);
      await writeFile(join(folder, 'handler.js'), handlerOf(pids));
      const settings = { model: 'scale-1.onnx', handler: 'handler.js', slo: '5s' };
      await writeFile(join(folder, 'function.json'), JSON.stringify(settings));
    },
  });
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

type Json = Record<string, unknown>;

async function send(method: string, path: string, body?: string | Uint8Array): Promise<{ status: number; text: string; code: string | null; json: Json }> {
  const reply = await fetch(host.url + path, { method, ...(body === undefined ? {} : { body }) });
  const text = await reply.text();
  const json = text.startsWith('{') ? (JSON.parse(text) as Json) : {};
  return { status: reply.status, text, code: reply.headers.get('x-turntable-error'), json };
} // prettier-ignore

const call = async (name: string, text: string): ReturnType<typeof send> =>
  await send('POST', `/function/${name}`, text);
const spent = (): number => (existsSync(pids) ? new Set(readFileSync(pids, 'utf8').trim().split('\n')).size : 0);
const ready = async (name: string): Promise<number> => (await send('GET', `/v2/models/${name}/ready`)).status;

async function metric(name: string): Promise<string[]> {
  const { text } = await send('GET', '/metrics');
  return text.split('\n').filter((line) => line.startsWith(name));
}

async function grpcReady(name: string): Promise<boolean> {
  const Service = serviceOf(loadProtos(), 'inference', 'GRPCInferenceService');
  const client = new Service(`127.0.0.1:${host.grpcPort}`, credentials.createInsecure());
  type Ask = (request: object, callback: (error: Error | null, reply?: { readonly ready: boolean }) => void) => void;
  const { ModelReady: ask } = client as unknown as { ModelReady: Ask };
  return await new Promise((resolve, reject) => {
    ask.call(client, { name }, (error, reply) => {
      client.close();
      if (error === null) resolve(reply?.ready === true);
      else reject(error);
    });
  });
}

/** y = x / -1: the division of the least number ends the process with SIGFPE. */
function dividing(): Uint8Array {
  const graph = new GraphBuilder('divides');
  const x = graph.input('x', ElementType.INT64, ['n']);
  graph.output(graph.node('Div', [x, graph.constant({ ints: [-1] })]), ElementType.INT64, ['n'], 'y');
  return serializeModel(graph.build());
}

/** As text: the least number is none of JavaScript's. */
const divided = (x: string): string => `{"inputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[${x}]}]}`;
const [least, one] = [divided('-9223372036854775808'), divided('1')];

test('a killer spends two processes on seven calls, and everything says that it is stopped, and why', async () => {
  const replies = [];
  for (let each = 0; each < 7; each++) replies.push(await call('kills', 'kill'));
  expect(replies.map(({ status, code }) => [status, code])).toEqual([
    [500, 'instance-died'],
    ...Array.from({ length: 6 }, () => [503, 'not-ready']),
  ]);
  expect(spent()).toBe(2);
  const why = /2 processes in a row died of it, .* it was ended by SIGSEGV in the handler's preprocess; it gets no other/;
  expect(replies[6]?.text).toMatch(why);

  const readiness = await send('GET', '/v2/models/kills/ready');
  expect(readiness).toMatchObject({ status: 503, code: 'not-ready' });
  expect(readiness.text).toMatch(why);
  const { functions } = (await send('GET', '/functions')).json as { functions: Json[] };
  expect(functions.find(({ name }) => name === 'kills')).toMatchObject({
    state: 'unavailable',
    reason: expect.stringMatching(why) as string,
  });
  const shown = await send('GET', '/api/functions');
  const [, line] = placedText(shown.json, Date.now()).split('\n');
  expect(line).toMatch(/^kills@1 +unavailable .* 2 died /);
  expect(line).toMatch(why);
  const index = await send('POST', '/v2/repository/index');
  expect(JSON.parse(index.text)).toContainEqual({
    name: 'kills',
    version: '1',
    state: 'UNAVAILABLE',
    reason: expect.stringMatching(why) as string,
  });
  expect(await metric('turntable_stopped')).toEqual(['turntable_stopped{function="kills",version="1"} 1']);
  expect(await metric('turntable_evictions_total{function="kills"')).toEqual([
    'turntable_evictions_total{function="kills",cause="died"} 2',
  ]);
  expect((await send('GET', '/functions/kills/log')).text).toMatch(why);
  expect(await grpcReady('kills')).toBe(false);
  expect(await grpcReady('calm')).toBe(true);
  expect((await send('GET', '/api/event-log')).text).toMatch(/Version 1 gets no process: 2 processes in a row/);
}); // prettier-ignore

test('a neighbour that shared its process goes on, and is told who ended it', async () => {
  expect((await send('POST', '/v2/repository/models/kills/load')).status).toBe(200);
  expect(await ready('kills')).toBe(200);
  expect(await metric('turntable_stopped')).toEqual([]);
  // A version that was killed is alone by now; another function kills what it shares with the neighbour.
  const body = JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }] });
  expect((await send('POST', '/v2/models/calm/infer', body)).status).toBe(200);
  expect((await send('PUT', '/functions/divides', dividing())).status).toBe(201);
  expect((await send('POST', '/v2/models/divides/infer', one)).status).toBe(200);
  expect((await send('POST', '/v2/models/divides/infer', least)).status).toBe(400);
  expect((await send('POST', '/v2/models/calm/infer', body)).status).toBe(200);
  expect(await ready('calm')).toBe(200);
  expect((await send('GET', '/functions/calm/log')).text).toMatch(/it was ended by SIGFPE while it worked for divides@1/);
  const { json } = await send('GET', '/api/functions');
  const calm = placedText(json, Date.now()).split('\n').find((each) => each.startsWith('calm@1'));
  expect(calm).toMatch(/1 died .* an instance died: it was ended by SIGFPE while it worked for divides@1$/);
}); // prettier-ignore

test('a version that has answered before is tried again after a pause, which Retry-After says', async () => {
  expect((await send('POST', '/v2/repository/models/kills/load')).status).toBe(200);
  expect((await call('kills', 'live')).status).toBe(200);
  expect((await call('kills', 'kill')).status).toBe(500);
  const reply = await fetch(`${host.url}/function/kills`, { method: 'POST', body: 'live' });
  const said = `${reply.status} ${reply.headers.get('retry-after')} ${await reply.text()}`;
  // On a slow machine the pause of a second is over by now.
  expect(said).toMatch(/^(503 1 .* it gets another one in \d+ s|200 )/);
  await expect.poll(() => ready('kills'), { timeout: 60_000 }).toBe(200);
  expect((await call('kills', 'live')).status).toBe(200);
});

test('a killer on trial is rolled back after two processes, however many calls it gets', async () => {
  const good = new GraphBuilder('good');
  good.output(
    good.node('Identity', [good.input('x', ElementType.INT64, ['n'])]),
    ElementType.INT64,
    ['n'],
    'y',
  );
  expect((await send('PUT', '/functions/trial', serializeModel(good.build()))).status).toBe(201);
  for (let each = 0; each < 25; each++) {
    expect((await send('POST', '/v2/models/trial/infer', least)).status).toBe(200);
  }
  expect((await send('PUT', '/functions/trial', dividing())).status).toBe(201);
  const served: number[] = [];
  for (let each = 0; each < 40; each++) served.push((await send('POST', '/v2/models/trial/infer', least)).status);
  const told = (await send('GET', '/api/event-log')).text.match(/Version 2 gets no process: \d+ processes in a row/g);
  expect(told).toEqual(['Version 2 gets no process: 2 processes in a row']);
  expect(served.at(0)).toBe(400);
  // The record of the division is written meanwhile.
  await expect.poll(async () => (await send('POST', '/v2/models/trial/infer', least)).status).toBe(200);
  const { json } = await send('GET', '/functions/trial/traffic');
  expect(json).toMatchObject({ shares: { 1: 100 } });
  // A new version is not held to be the old one.
  expect((await send('PUT', '/functions/kills', await readFile(await writeScaleModel(host.folder, 3)))).status).toBe(201);
}); // prettier-ignore
