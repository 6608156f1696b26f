/** `turntable/client` against a real host. It also works in a browser: it imports nothing from Node. */
import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  BadRequestError,
  ConnectionError,
  NotFoundError,
  OverloadedError,
  tensor,
  Turntable,
  TurntableError,
  UnauthorizedError,
  type ClientTensor,
  type Datatype,
} from '../../src/client/index.ts';
import { decodeInfer, encodeInfer } from '../../src/client/infer.ts';
import { elementTypeOf, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { writeReluModel } from '../support/models.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

const apiKey = 'a-key-for-tests';
const datatypes = ['BOOL', 'UINT8', 'INT64', 'UINT64', 'FP16', 'FP32', 'FP64', 'BYTES'] as const satisfies Datatype[];

/** Each output is an input. */
async function writeSame(folder: string): Promise<void> {
  const graph = new GraphBuilder('same');
  for (const datatype of datatypes) {
    const x = graph.input(`${datatype} in`, elementTypeOf(datatype), ['n']);
    graph.output(graph.node('Identity', [x]), elementTypeOf(datatype), ['n'], datatype);
  }
  await mkdir(folder, { recursive: true });
  await writeModel(graph.build(), join(folder, 'model.onnx'));
  await writeFile(join(folder, 'function.json'), JSON.stringify({ slo: '60s' }));
}

let host: ReluHost;
let client: Turntable;

beforeAll(async () => {
  host = await startReluHost(['relu'], {
    apiKeys: [apiKey],
    prepare: async (functions) => await writeSame(join(functions, 'same')),
  });
  client = new Turntable({ url: host.url, apiKey });
});
afterAll(async () => {
  await host?.[Symbol.asyncDispose]();
});

test('a string with a lone surrogate is refused before it is sent', () => {
  const half = tensor('text', 'BYTES', [2], ['whole \u{1f600}', 'half \ud83d']);
  expect(() => encodeInfer({ inputs: [half] })).toThrow("tensor 'text': element 1 has half of a surrogate pair");
});

test('no file of the client imports anything from outside its folder', () => {
  const folder = join(import.meta.dirname, '../../src/client');
  for (const file of readdirSync(folder)) {
    const imports = readFileSync(join(folder, file), 'utf8').matchAll(/^(?:import|export|\}) .*from '([^']+)'/gm);
    for (const [, from] of imports) expect(from, file).toMatch(/^\.\/[\w-]+\.ts$/);
  }
});

test('a tensor whose data does not fill its shape is refused before it is sent', () => {
  expect(() => tensor('x', 'FP32', [2, 3], new Float32Array(5))).toThrow(
    "tensor 'x' has 5 elements, but its shape [2,3] takes 6",
  );
});

test('encoding and decoding returns the same tensor, for every datatype', () => {
  const arbitrary = fc.oneof(
    fc
      .array(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }))
      .map((v) => tensor('a', 'INT64', [v.length], BigInt64Array.from(v))),
    fc.array(fc.float()).map((v) => tensor('a', 'FP32', [v.length], Float32Array.from(v))),
    fc.array(fc.nat(65_535)).map((v) => tensor('a', 'FP16', [v.length], Uint16Array.from(v))),
    fc.array(fc.string()).map((v) => tensor('a', 'BYTES', [v.length], v)),
    fc.array(fc.nat(255)).map((v) => tensor('a', 'BYTES', [1], [Uint8Array.of(0xff, ...v)])),
  );
  fc.assert(
    fc.property(fc.array(arbitrary, { maxLength: 4 }), (tensors: ClientTensor[]) => {
      const { body, headerLength } = encodeInfer({ inputs: tensors });
      const { inputs } = JSON.parse(new TextDecoder().decode(body.subarray(0, headerLength))) as { inputs: object[] };
      const header = new TextEncoder().encode(JSON.stringify({ model_name: 'm', model_version: '1', outputs: inputs }));
      const reply = new Uint8Array([...header, ...body.subarray(headerLength)]);
      expect(decodeInfer(reply, header.byteLength).outputs).toEqual(tensors);
    }),
  );
});

describe('against a host', () => {
  test('every datatype comes back exactly, and the reply says where it ran', async () => {
    const inputs = [
      tensor('BOOL in', 'BOOL', [2], Uint8Array.of(1, 0)),
      tensor('UINT8 in', 'UINT8', [2], Uint8Array.of(0, 255)),
      tensor('INT64 in', 'INT64', [2], BigInt64Array.of(-(2n ** 63n), 2n ** 63n - 1n)),
      tensor('UINT64 in', 'UINT64', [2], BigUint64Array.of(0n, 2n ** 64n - 1n)),
      tensor('FP16 in', 'FP16', [2], Uint16Array.of(0x3c00, 0x7c00)),
      tensor('FP32 in', 'FP32', [2], Float32Array.of(-0, 1.5)),
      tensor('FP64 in', 'FP64', [2], Float64Array.of(Math.PI, -Infinity)),
      tensor('BYTES in', 'BYTES', [2], ['Où', '']),
    ];
    const result = await client.infer('same', { inputs, id: 'seven' });
    expect(result).toMatchObject({ id: 'seven', model: 'same', version: '1' });
    expect(result.placement).toMatch(/^cpu pool/);
    expect(result.totalMs).toBeGreaterThan(0);
    for (const [at, datatype] of datatypes.entries()) expect(result.output(datatype).data).toEqual(inputs[at]!.data);
    expect(() => result.output('z')).toThrow("the reply has no output 'z'; it has 'BOOL', 'UINT8'");
    const some = await client.infer('same', { inputs, outputs: ['FP64', 'BOOL'] });
    expect(some.outputs.map(({ name }) => name)).toEqual(['FP64', 'BOOL']);
  });

  test('a model is published, called as JSON, listed, unloaded, and removed', async () => {
    await writeReluModel(host.folder);
    const model = await readFile(join(host.folder, 'relu.onnx'));
    const published = await client.publish('mine', model, { settings: { slo: '5s' } });
    expect(published).toEqual({ name: 'mine', version: '1', created: true });
    expect(await client.publish('mine', model)).toEqual({ name: 'mine', version: '1', created: false });
    expect(await client.callJson('mine', { input: [[-1, 2, -3, 4]] })).toEqual({ output: [[0, 2, 0, 4]] });
    expect((await client.functions()).map(({ name }) => name)).toContain('mine');
    expect(await client.isReady('mine')).toBe(true);
    await client.unload('mine');
    expect(await client.isReady('mine')).toBe(false);
    await client.load('mine');
    await client.remove('mine');
    expect(await client.isReady('mine')).toBe(false);
    expect(await client.isReady()).toBe(true);
  });

  test("errors are classes, with the host's message and code", async () => {
    const unknown = await client.callJson('nobody', {}).catch((error: unknown) => error);
    expect(unknown).toBeInstanceOf(NotFoundError);
    expect(unknown).toMatchObject({ status: 404, code: 'unknown-function', message: "there is no function 'nobody'" });
    await expect(client.callJson('relu', { input: [[1]] })).rejects.toBeInstanceOf(BadRequestError);
    await expect(new Turntable({ url: host.url }).remove('relu')).rejects.toBeInstanceOf(UnauthorizedError);
    // This host has no Redis.
    await expect(client.callLater('relu', '{}')).rejects.toBeInstanceOf(OverloadedError);
  });
});

test('no listener is a connection error, and an abort rejects with its reason', async () => {
  const server = createServer(() => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const controller = new AbortController();
  const leaving = new Turntable({ url }).call('relu', '{}', { signal: controller.signal });
  controller.abort(new Error('enough'));
  await expect(leaving).rejects.toThrow('enough');
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  const error = await new Turntable({ url }).isReady().catch((failure: unknown) => failure);
  expect(error).toBeInstanceOf(ConnectionError);
  expect(error).toBeInstanceOf(TurntableError);
  expect((error as Error).message).toContain(`the host at ${url} could not be reached`);
});
