import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, test } from 'vitest';
import type { ReplayRun } from './dashboard/index.ts';
import { ReplayRuns } from './replays.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-runs-'));
afterAll(() => rmSync(folder, { recursive: true }));

/**
 * Stands in for `turntable`: writes its arguments as the report; with seed 7 it connects to the test and stays until it
 * is killed.
 */
const gate = createServer();
gate.listen(0, '127.0.0.1');
await once(gate, 'listening');
afterAll(() => gate.close());
const script = join(folder, 'command.mjs');
writeFileSync(
  script,
  `import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
const words = process.argv.slice(2);
if (words[words.indexOf('--seed') + 1] === '7') connect(${(gate.address() as AddressInfo).port}, '127.0.0.1');
else writeFileSync(words.at(-1), JSON.stringify(words.slice(0, -2)));
`,
);

const opened: ReplayRuns[] = [];
const newRuns = (): ReplayRuns => {
  const runs = new ReplayRuns({
    folder: join(folder, `reports-${opened.length}`),
    tracesFolder: join(folder, 'traces'),
    command: [process.execPath, script],
  });
  opened.push(runs);
  return runs;
};
afterEach(async () => {
  for (const runs of opened) await runs.close();
});

/** The report of a finished run. Runs come one after the other, so the end of a later one shows that it is done. */
async function reportOf(runs: ReplayRuns, { id }: ReplayRun): Promise<unknown> {
  for (;;) {
    const run = (await runs.list()).find((each) => each.id === id);
    if (run?.state === 'done') return await runs.report(id);
    if (run?.state === 'failed') throw new Error(run.reason ?? '');
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test('a replay and a search for a size are the commands that a person would type', async () => {
  const runs = newRuns();
  const replay = await runs.start({ functions: 'mlp=2', rate: 5 });
  const search = await runs.start({
    kind: 'capacity',
    functions: 'mlp=2',
    machine: 'p3.8xlarge,h200x8',
    goodput: '99.5%',
    hostsMax: 4,
    requests: 500,
  });
  expect(replay.command).toBe('turntable replay --poisson 5 --functions mlp=2');
  expect(search.command).toBe(
    'turntable plan capacity --goodput 99.5% --hosts-max 4 --poisson 100 --requests 500 --functions mlp=2 --machine p3.8xlarge,h200x8',
  );
  expect(await reportOf(runs, search)).toEqual(search.command.split(' ').slice(1));
});

test('a search has a default limit', async () => {
  const { command } = await newRuns().start({ kind: 'capacity', functions: 'mlp=2' });
  expect(command).toContain('--goodput 99% --hosts-max 8');
  expect(command).toContain('--requests 100000');
});

test.each([
  [{ kind: 'magic' as 'capacity' }, "field 'kind' is 'magic', but takes replay, capacity"],
  [{ kind: 'capacity', goodput: '99%; rm' }, "field 'goodput' is '99%; rm', but takes a share such as 99%"],
  [{ kind: 'capacity', hostsMax: 1000 }, "field 'hostsMax' is 1000, but takes 1 to 32"],
  [{ kind: 'capacity', requests: 1e9 }, "field 'requests' is 1000000000, but a search takes at most 100000"],
  [{ goodput: '99%' }, "fields 'goodput' and 'hostsMax' go with kind 'capacity'"],
] as const)('%j is refused by name', async (request, message) => {
  await expect(newRuns().start(request)).rejects.toThrow(message);
});

test('removing a running replay ends it, a queued one never begins, and the next one gets its turn', async () => {
  const runs = newRuns();
  let connected = once(gate, 'connection') as Promise<[Socket]>;
  const stuck = await runs.start({ functions: 'mlp=1', seed: 7 });
  const waiting = await runs.start({ functions: 'mlp=1', seed: 8 });
  const next = await runs.start({ functions: 'mlp=2', seed: 7 });
  const [first] = await connected;
  connected = once(gate, 'connection') as Promise<[Socket]>;
  const ended = once(first.resume(), 'close');
  await runs.remove(waiting.id);
  await runs.remove(stuck.id);
  await ended;
  const [second] = await connected;
  expect((await runs.list()).map(({ id, state }) => [id, state])).toEqual([[next.id, 'running']]);
  const endedToo = once(second.resume(), 'close');
  await runs.remove(next.id);
  await endedToo;
  expect(await runs.list()).toEqual([]);
});
