/**
 * How many files a reader passes who follows one warm call through the host. A feature that is not in use should not be
 * on the way; one that adds to it needs a reason.
 */
import { expect, test, vi } from 'vitest';
import { policies } from '../../src/schedule/index.ts';
import { emulateGpus } from '../support/emulate-gpus.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { serve } from '../support/serving.ts';
import { filesOfEach } from '../support/walk.ts';

const calls = 15;
const body = JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [-1, 0, 1, 2] }] });

/** Where it ran. */
async function infer(host: ReluHost): Promise<string> {
  const reply = await fetch(`${host.url}/v2/models/relu/infer`, { method: 'POST', body });
  expect(await reply.json()).toMatchObject({ outputs: [{ data: [0, 0, 1, 2] }] });
  return reply.headers.get('x-turntable-placement') ?? '';
}

async function walkOf(place: string, flags: Record<string, string>): Promise<string[]> {
  await using host = await startReluHost(['relu'], { flags });
  await vi.waitFor(async () => expect(await infer(host)).toBe(place), { timeout: 60_000, interval: 20 });
  for (let made = 0; made < calls; made++) await infer(host);
  return await filesOfEach(calls, async () => expect(await infer(host)).toBe(place));
}

test('a warm call that runs on the CPU crosses at most 60 files of the host', async () => {
  const files = await walkOf('cpu pool warm', { 'gpu.use': 'off' });
  expect(files).toContain('src/host/invoke.ts');
  expect(files.length, files.join('\n')).toBeLessThanOrEqual(60);
});

test.skipIf(emulatorMissing)('a warm call that runs on a GPU crosses at most 65 files of the host', async () => {
  await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
  const files = await walkOf('gpu0 warm', {});
  expect(files).toContain('src/host/live/gpu-place.ts');
  expect(files.length, files.join('\n')).toBeLessThanOrEqual(65);
});

test('a request of a replay crosses at most 20 files of the simulator and the scheduler', async () => {
  const cell = {
    model: 'bert-base',
    ratePerS: 100,
    mode: 'dha',
    policy: policies.best,
    instances: 48,
    seed: 1,
  } as const;
  const requests = 10_000;
  const files = await filesOfEach(1, () => serve({ ...cell, requests }), requests);
  const own = files.filter((file) => /^src\/(replay|schedule)/.test(file));
  expect(own).toContain('src/schedule/routing.ts');
  expect(own.length, own.join('\n')).toBeLessThanOrEqual(20);
});
