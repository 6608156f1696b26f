/** The commands for asynchronous calls and workers, as a user runs them. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { serve, type ServingHost } from '../cli/command.ts';
import { turntableHere } from '../cli/in-process.ts';
import type { Outcome } from '../support/run-command.ts';
import { writeReluModel } from '../support/models.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';

describe.skipIf(redisMissing !== undefined)('with Redis', () => {
  let folder: string;
  let redis: RedisServer;
  let host: ServingHost;

  const run = (...words: string[]): Promise<Outcome> => turntableHere(words, { TURNTABLE_URL: host.url });

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-queue-cli-'));
    const place = join(folder, 'functions', 'relu');
    await mkdir(place, { recursive: true });
    await writeReluModel(place);
    await writeFile(join(place, 'function.json'), '{"model": "relu.onnx"}');
    redis = await RedisServer.start();
    host = await serve([
      '--data',
      join(folder, 'data'),
      '--functions',
      join(folder, 'functions'),
      '--redis',
      redis.url,
    ]);
  });

  afterAll(async () => {
    await host?.end();
    await redis?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('call --async prints an id, with which jobs shows, lists and prints the reply', async () => {
    const called = await run('call', 'relu', '--async', '--data', '{"input": [[1, -2, 3, -4]]}');
    const id = called.stdout.trim();
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    let result = await run('jobs', id, '--result');
    while (result.stderr.includes('has not ended yet')) result = await run('jobs', id, '--result');
    expect(result).toMatchObject({ exitCode: 0, stdout: '{"output":[[1,0,3,0]]}\n' });
    expect((await run('jobs', id)).stdout).toMatch(/status: finished\nfunction: relu\n[^]*function status: 200/);
    expect((await run('jobs')).stdout).toMatch(
      new RegExp(`CALL.*\\n${id} +relu +finished +200[^]*0 waiting, 0 running`),
    );
    expect(JSON.parse((await run('jobs', '--json')).stdout)).toMatchObject({ waiting: 0, calls: [{ id }] });
    const cancelled = await run('jobs', id, '--cancel');
    expect(cancelled).toMatchObject({ exitCode: 1, stderr: expect.stringMatching(/ended already.*409/) as string });
  });

  test('an invalid request is refused before anything is sent', async () => {
    expect(await run('call', 'relu', '--data', '1', '--callback', 'http://x/')).toMatchObject({ exitCode: 2 });
    expect(await run('jobs', '--cancel')).toMatchObject({ exitCode: 2 });
    for (const [words, named] of [
      [['--redis', 'nowhere'], '--redis'],
      [['--redis', 'redis://127.0.0.1:6379/sessions'], 'with a database'],
      [['--name', 'two words'], '--name'],
      [['--cores', '0'], '--cores'],
      [['--cache', 'much'], '--cache'],
      [['--store', 's3://models'], 'AWS_ACCESS_KEY_ID'],
    ] as const) {
      const refused = await run('worker', ...words);
      expect(refused).toMatchObject({ exitCode: 2, stderr: expect.stringContaining(named) as string });
    }
  });
});
