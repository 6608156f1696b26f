/** Publishing to a host while others publish models that take long to open. */
import { readdir, stat } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { serializeModel } from '../../src/onnx/index.ts';
import { modelOfFunctions, towerOf } from '../support/function-models.ts';
import { startReluHost } from '../support/relu-host.ts';

const honest = serializeModel(modelOfFunctions(towerOf(1, 3)));
const put = async (url: string, name: string, body: Uint8Array): Promise<Response> =>
  await fetch(`${url}/functions/${name}`, { method: 'PUT', body: body as Uint8Array<ArrayBuffer> });

test('models of 31 levels of functions are refused at once, and an honest one beside them is published', async () => {
  await using host = await startReluHost([]);
  const bomb = serializeModel(modelOfFunctions(towerOf(30, 10)));
  expect(bomb.byteLength).toBeLessThan(20_000);
  // After an accepted small model, whose process opens the next ones as well.
  expect((await put(host.url, 'first', honest)).status).toBe(201);
  const bombs = [1, 2, 3].map((number) => put(host.url, `bomb${number}`, bomb));
  expect((await put(host.url, 'honest', honest)).status).toBe(201);
  for (const reply of await Promise.all(bombs)) {
    expect(reply.status).toBe(422);
    expect(await reply.json()).toEqual({
      error:
        'the model was refused: its calls of local functions stand for 2e+30 nodes, and this host opens at most 32768',
    });
  }
});

test('a model whose client has left is not opened to its end, and holds up nobody', async () => {
  await using host = await startReluHost([]);
  // ONNX Runtime needs seconds for it, which is why it is dropped and not refused.
  const slow = serializeModel(modelOfFunctions(towerOf(1, 30_000)));
  const client = request(`${host.url}/functions/slow`, { method: 'PUT' });
  const over = new Promise((resolve) => client.once('close', resolve));
  client.on('error', () => undefined).end(slow);
  const staging = join(host.folder, 'data', 'staging');
  const received = async (): Promise<number> => {
    for (const folder of await readdir(staging).catch(() => [])) {
      const found = await stat(join(staging, folder, 'model.onnx')).catch(() => undefined);
      if (found !== undefined) return found.size;
    }
    return 0;
  };
  await expect.poll(received).toBe(slow.byteLength);
  client.destroy();
  await over;
  expect((await put(host.url, 'honest', honest)).status).toBe(201);
  expect((await fetch(`${host.url}/functions/slow`)).status).toBe(404);
});
