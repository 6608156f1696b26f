/** A handler that blocks its process, in a host with one core: which calls it delays. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { writeReluModel } from '../support/models.ts';
import { startReluHost } from '../support/relu-host.ts';

/** Blocks until a file exists. */
const handlerUntil = (file: string): string => `
  import { existsSync } from 'node:fs';
  const never = new Int32Array(new SharedArrayBuffer(4));
  export async function preprocess(request) {
    while (request.text() === 'block' && !existsSync(${JSON.stringify(file)})) Atomics.wait(never, 0, 0, 5);
    return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
  }
  export async function postprocess() { return 'done'; }`;

test('calls to a handler that blocks do not delay the other functions of its process', async () => {
  const others = ['other-0', 'other-1', 'other-2'];
  let file = '';
  await using host = await startReluHost(others, {
    flags: { 'cpu.cores': '1' },
    prepare: async (functions) => {
      file = join(functions, 'go-on');
      const folder = join(functions, 'stuck');
      await mkdir(folder);
      await writeReluModel(folder);
      await writeFile(join(folder, 'handler.mjs'), handlerUntil(file));
      const settings = { model: 'relu.onnx', handler: 'handler.mjs', timeouts: { handler: '120s' } };
      await writeFile(join(folder, 'function.json'), JSON.stringify(settings));
    },
  });
  const body = JSON.stringify({ inputs: [{ name: 'x', shape: [1, 4], datatype: 'FP32', data: [7, 0, 0, 0] }] });
  const callOther = async (name: string): Promise<unknown> => {
    const response = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body });
    return response.status === 200
      ? ((await response.json()) as { outputs: { data: number[] }[] }).outputs[0]?.data[0]
      : response.status;
  };
  let answered = 0;
  const callStuck = async (text: string): Promise<string> => {
    const response = await fetch(`${host.url}/function/stuck`, { method: 'POST', body: text });
    answered++;
    return await response.text();
  };
  // All functions are in one shared process now.
  expect(await callStuck('go on')).toBe('done');
  expect(await Promise.all(others.map(callOther))).toEqual([7, 7, 7]);

  const blocked = Promise.all(Array.from({ length: 20 }, () => callStuck('block')));
  for (let round = 0; round < 5; round++) expect(await Promise.all(others.map(callOther))).toEqual([7, 7, 7]);
  // All blocked calls came first, and none of them is done.
  expect(answered).toBe(1);
  await writeFile(file, '');
  expect(await blocked).toEqual(Array.from({ length: 20 }, () => 'done'));
});
