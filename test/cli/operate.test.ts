/** An operator's daily questions to a running host: the log of a function, and which functions miss their SLO. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/host/config/options.ts';
import { serve, turntable, type ServingHost } from './command.ts';
import { turntableHere } from './in-process.ts';

const key = 'a-key-for-the-tests';
let dir: string;
let host: ServingHost;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-operate-'));
  for (const name of ['trend', 'other']) {
    const { exitCode, stderr } = await turntable(['init', name], { cwd: dir });
    if (exitCode !== 0) throw new Error(stderr);
    const path = join(dir, 'functions', name, 'handler.ts');
    const source = readFileSync(path, 'utf8').replace(
      '  const { readings } = Object(request.json());',
      `  const { readings } = Object(request.json());
  console.log('${name} was asked for', readings);
  if (readings === 'boom') (undefined as unknown as string[]).pop();
  if (readings === 'later') setTimeout(() => { throw new Error('too late'); }, 1);`,
    );
    writeFileSync(path, source);
  }
  const words = ['--data', join(dir, 'data'), '--functions', join(dir, 'functions'), '--log-level', 'silent'];
  // One process for both functions: the owner of a line must not depend on which was called last.
  host = await serve([...words, '--cpu-cores', '1'], { TURNTABLE_API_KEYS: key });
});

afterAll(async () => {
  await host.end();
  rmSync(dir, { recursive: true, force: true });
});

const env = (): Record<string, string> => ({ TURNTABLE_URL: host.url, TURNTABLE_API_KEY: key });

async function call(name: string, readings: unknown): Promise<void> {
  await turntableHere(['call', name, '--data', JSON.stringify({ readings })], env());
}

interface Line {
  readonly source: string;
  readonly level: string;
  readonly text: string;
}

/** Runs `turntable logs -f --json`; tests wait for its lines. */
function follow(name: string): { readonly child: ChildProcess; until(text: string): Promise<Line[]> } {
  const command = join(packageRoot, 'bin', 'turntable.js');
  const child = spawn(process.execPath, [command, 'logs', '-f', '--json', name], {
    env: { ...process.env, ...env() },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines: Line[] = [];
  const reader = createInterface(child.stdout);
  reader.on('line', (line) => lines.push(JSON.parse(line) as Line));
  const until = async (text: string): Promise<Line[]> => {
    while (!lines.some((line) => line.text.includes(text))) {
      await new Promise((resolve) => reader.once('line', resolve));
    }
    return lines;
  };
  return { child, until };
}

test("a function's log has its handler's output and errors, its failed calls and its instances, and no other function's", async () => {
  const followed = follow('trend');
  try {
    await call('trend', [1, 2, 3, 4]);
    await followed.until('trend was asked for [ 1, 2, 3, 4 ]');
    await Promise.all([call('trend', 'boom'), call('other', [1, 2, 3, 4]), call('other', [4, 3, 2, 1])]);
    await followed.until('at Object.preprocess (handler.ts:9:');
    await followed.until("request failed: the handler's preprocess failed");
    await call('trend', 'later');
    await followed.until('Timeout._onTimeout (handler.ts:10:');
    await followed.until('an error that nothing caught: too late');
    const lines = await followed.until('Cold start, cpu pool');
    expect(lines.filter(({ text }) => /\bother\b/.test(text))).toEqual([]);
    expect(lines.find(({ source }) => source === 'instance')?.text).toMatch(/^an instance loaded it in /);
  } finally {
    followed.child.kill();
  }
  const { stdout } = await turntableHere(['logs', 'other'], env());
  expect(stdout).toMatch(/^\d\d:\d\d:\d\d\.\d{3} handler +info +v1 other was asked for \[ 4, 3, 2, 1 \]$/m);
  // Only the end of a process that both shared names the function that caused it.
  const own = stdout.split('\n').filter((line) => !line.includes('instance died'));
  expect(own.join('\n')).not.toContain('trend');
  const one = await turntableHere(['logs', 'other', '--lines', '1', '--json'], env());
  expect(one.stdout.trimEnd().split('\n')).toHaveLength(1);
});

test('a log needs the key, and an existing function', async () => {
  const without = await turntableHere(['logs', 'trend'], { TURNTABLE_URL: host.url });
  expect(without).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('[HTTP 401]') as string });
  const unknown = await turntableHere(['logs', 'nobody'], env());
  expect(unknown.stderr).toBe("turntable: there is no function 'nobody' [HTTP 404]\n");
  const headers = { authorization: `Bearer ${key}` };
  for (const query of ['lines=-1', 'lines=many', 'follow=maybe']) {
    const response = await fetch(`${host.url}/functions/trend/log?${query}`, { headers });
    expect([response.status, await response.json()]).toEqual([
      400,
      { error: expect.stringContaining('must be') as string },
    ]);
  }
});

test("call --trace prints where the time went, with the id that is in the host's log", async () => {
  const words = ['call', 'trend', '--trace', '--data', '{"readings": [1, 2, 3, 4]}'];
  const { stdout, stderr } = await turntableHere(words, env());
  expect(JSON.parse(stdout)).toMatchObject({ trend: 'rising' });
  const names = stderr.split('\n').map((line) => line.replaceAll(/[^a-z]*([a-z]+) .*/g, '$1'));
  expect(names).toEqual(
    expect.arrayContaining(['trace', 'client', 'host', 'preprocess', 'model', 'postprocess', 'other']),
  );
  expect(stderr).toMatch(/model +\S+ m?s {2}cpu pool/);
  const failing = ['call', 'trend', '--trace', '--data', '{"readings": "boom"}'];
  const trace = '0123456789abcdef0123456789abcdef';
  await turntableHere(failing, { ...env(), TRACEPARENT: `00-${trace}-0123456789abcdef-01` });
  expect((await turntableHere(['logs', 'trend'], env())).stdout).toContain(`traceparent=00-${trace}-`);
});

test('top lists functions that missed their SLO first, and how busy the host is; once without a terminal', async () => {
  // No call is answered within a tenth of a millisecond.
  await turntableHere(['set', 'other', 'slo=0.1ms'], env());
  for (let count = 0; count < 20; count++) await call('other', [1, 2, 3, 4]);
  const text = await turntableHere(['top'], env());
  expect(text.stderr).toBe('');
  const lines = text.stdout.trimEnd().split('\n');
  expect(lines[0]).toMatch(
    /^http:\S+ {2}\d\d:\d\d:\d\d {2}[12] of 2 functions miss their SLO(?:; \d+ calls? missed it, too few to judge)?$/,
  );
  expect(lines[1]).toMatch(/^calls {2}[1-9]\d* in .*; \d+ in flight, 0 wait$/);
  expect(lines[2]).toMatch(/^cores {2}\[[#.]{10}\] [01] of 1 busy, \d leased(?:; the machine is .*)?$/);
  expect(lines.some((line) => line.startsWith('other: '))).toBe(true);
  const header = lines.findIndex((line) => line.startsWith('FUNCTION'));
  expect(lines[header]).toMatch(/^FUNCTION +CALLS\/s +P50 +P99 +SLO +IN SLO +MISSED +COLD +WAIT +WHERE$/);
  expect(lines.slice(header + 1)).toHaveLength(2);
  const json = await turntableHere(['top', '--once', '--json', '--range', '1h'], env());
  const { machine, functions } = JSON.parse(json.stdout) as {
    machine: { cores: { total: number } };
    functions: { name: string; totals: { late: number; failed: number } }[];
  };
  expect(machine.cores.total).toBe(1);
  const missed = functions.map(({ totals }) => totals.late + totals.failed);
  expect(functions.find(({ name }) => name === 'other')?.totals.late).toBeGreaterThan(0);
  expect(missed).toEqual(missed.toSorted((one, other) => other - one));
  const wrong = await turntableHere(['top', '--range', '1s'], env());
  expect(wrong.stderr).toContain("range '1s' is not a duration from 1m to 24h");
});
