/** A host in a control group, one of whose instances takes more memory than there is. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sumGraph } from '../../bench/chaos/models.ts';
import { MemoryLimit } from '../../bench/overload/memory-limit.ts';
import { Servers } from '../../bench/servers.ts';
import { turntable } from '../cli/command.ts';

const limitBytes = 500 * 2 ** 20;

const greedy = `const kept = [];
export function preprocess(request) {
  kept.push(Buffer.alloc(Number(request.text()), 1));
  return [{ name: 'x', datatype: 'FP32', shape: [1, 1], data: [1] }];
}
export const postprocess = () => ({ kept: kept.length });
`;

test('an instance that the kernel ends for memory is told as that, and its budget is halved', async ({ skip }) => {
  using limit = new MemoryLimit(limitBytes);
  if (!limit.holds) return skip(`no control group can be made here: ${limit.means}`);
  await using servers = await Servers.create();
  await servers.addFunction('greedy', sumGraph(0), { handler: 'handler.js', slo: '60s' });
  await writeFile(join(servers.folder, 'functions', 'greedy', 'handler.js'), greedy);
  await servers.addFunction('sum', sumGraph(1), { slo: '60s' });
  // A limit of its own would stop the instance before the kernel does.
  const flags = ['--gpu-use', 'off', '--cpu-cores', '1', '--cpu-memory', '8GB'];
  const { url } = await servers.startHost(flags, {}, limit.through);
  const textOf = async (path: string, init: RequestInit = {}): Promise<string> =>
    await (await fetch(`${url}${path}`, init)).text();
  expect(await textOf('/metrics')).toContain('turntable_memory_budget_bytes{part="sessions"} 8000000000\n');

  const call = await fetch(`${url}/function/greedy`, { method: 'POST', body: String(2 * limitBytes) });
  expect(call.status).toBeGreaterThanOrEqual(500);
  expect(await call.text()).toMatch(/the kernel ended it for lack of memory/);
  expect(limit.kills).toBeGreaterThan(0);

  const metrics = await textOf('/metrics');
  const kills = Number(/^turntable_oom_kills_total\{part="sessions"\} (\d+)$/m.exec(metrics)?.[1]);
  expect(kills).toBe(limit.kills);
  const budget = Number(/^turntable_memory_budget_bytes\{part="sessions"\} (\d+)$/m.exec(metrics)?.[1]);
  expect(budget).toBe(Math.floor(limitBytes / 2 ** Math.min(4, kills)));
  const told = /the kernel ended a process for sessions on CPU cores \(cpu\.memory\) for lack of memory \(oom_kill\)/;
  expect((await turntable(['ps', '--url', url])).stdout).toMatch(told);
  const { host } = JSON.parse(await textOf('/api/memory')) as { host: { kills: { text: string }[] } };
  expect(host.kills.map(({ text }) => text)).toEqual(
    Array.from({ length: kills }, () => expect.stringMatching(told) as string),
  );
  // The host and its other functions go on.
  expect(JSON.parse(await textOf('/function/sum', { method: 'POST', body: '{"input":[[1]]}' }))).toEqual({
    output: [[2]],
  });
});
