import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { loadConfig, type HostConfig } from '../../host/index.ts';
import { inspectFolder, inspectPort, inspectRuntime } from './collect.ts';
import { inspectFunctions } from './functions.ts';
import { redisMissing, RedisServer } from '../../../test/support/redis-server.ts';
import { askRedis } from './redis.ts';

let dir: string;
let servers: (Server | HttpServer)[];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-doctor-'));
  servers = [];
});

afterEach(() => {
  for (const server of servers) server.close();
  rmSync(dir, { recursive: true, force: true });
});

async function listen(server: Server | HttpServer): Promise<number> {
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** A server that answers each command, named in capitals, as it is told to. */
async function answering(answer: (command: string) => string, seen: string[] = []): Promise<number> {
  return await listen(
    createServer((socket) => {
      socket.on('error', () => undefined);
      socket.on('data', (chunk) => {
        for (const [, command = ''] of chunk.toString().matchAll(/^\*\d+\r\n((?:\$\d+\r\n.*\r\n)+)/gm)) {
          const words = [...command.matchAll(/^\$\d+\r\n(.*)\r\n/gm)].map(([, word = '']) => word);
          seen.push(words.join(' '));
          socket.write(answer((words[0] ?? '').toUpperCase()));
        }
      });
    }),
  );
}

describe('Redis', () => {
  const info = '# Server\r\nredis_version:7.2.4\r\nos:Linux\r\n';
  const answers: Readonly<Record<string, string>> = {
    HELLO: '%0\r\n',
    PING: '+PONG\r\n',
    INFO: `$${info.length}\r\n${info}\r\n`,
  };
  const asRedis = (command: string): string => answers[command] ?? '+OK\r\n';

  test('Redis that answers is reported with its version', async () => {
    const port = await answering(asRedis);
    expect(await askRedis(`redis://127.0.0.1:${port}`, 20_000)).toMatchObject({
      state: 'answers',
      address: `127.0.0.1:${port}`,
      version: '7.2.4',
    });
  });

  test('Redis gets its password first, which no fact contains', async () => {
    const seen: string[] = [];
    const port = await answering(asRedis, seen);
    const facts = await askRedis(`redis://me:s%C3%A9cret@127.0.0.1:${port}`, 20_000);
    expect(seen[0]).toMatch(/AUTH me sécret$/i);
    expect(seen).toContainEqual(expect.stringMatching(/^info server$/i));
    expect(facts.state).toBe('answers');
    expect(JSON.stringify(facts)).not.toContain('cret');
  });

  test.skipIf(redisMissing !== undefined)('Redis tells the settings on which accepted calls depend', async () => {
    await using server = await RedisServer.start({ durable: true });
    expect(await askRedis(server.url, 5000)).toMatchObject({
      settings: new Map([
        ['appendonly', 'yes'],
        ['maxmemory-policy', 'noeviction'],
      ]),
    });
  });

  test('Redis that needs a password is reported as locked', async () => {
    const port = await answering(() => '-NOAUTH Authentication required.\r\n');
    expect(await askRedis(`redis://127.0.0.1:${port}`, 20_000)).toMatchObject({
      state: 'locked',
      reason: 'NOAUTH Authentication required.',
    });
  });

  test.each([
    ['another server', 'HTTP/1.1 400 Bad Request\r\n\r\n', 20_000, 'what answers does not speak the protocol of Redis'],
    ['a server that says nothing', '', 50, 'no answer within 50 ms'],
  ])('%s is no Redis', async (_name, answer, timeoutMs, reason) => {
    const port = await answering(() => answer);
    expect(await askRedis(`redis://127.0.0.1:${port}`, timeoutMs)).toMatchObject({ state: 'silent', reason });
  });

  test('Redis on a Unix socket that does not exist is silent', async () => {
    expect(await askRedis(`unix://${dir}/redis.sock`, 2000)).toMatchObject({
      state: 'silent',
      address: `${dir}/redis.sock`,
    });
  });
});

describe('the port', () => {
  test('the port is free when no program listens on it', async () => {
    expect(await inspectPort({ host: '127.0.0.1', port: 0 })).toMatchObject({ state: 'free' });
  });

  test('the port of a running host is distinguished from that of another program', async () => {
    const host = await listen(createHttpServer((_request, response) => response.end('{"name":"turntable"}')));
    expect(await inspectPort({ host: '127.0.0.1', port: host })).toMatchObject({ state: 'turntable' });
    const other = await listen(createHttpServer((_request, response) => response.end('hello')));
    expect(await inspectPort({ host: '127.0.0.1', port: other })).toMatchObject({ state: 'taken' });
  });

  test('the port is unusable with an address that this machine does not have', async () => {
    expect(await inspectPort({ host: '192.0.2.1', port: 8000 })).toMatchObject({ state: 'unusable' });
  });
});

describe('a folder', () => {
  test('a folder that exists, or can be made, is writable and has free space', async () => {
    expect(await inspectFolder(dir)).toMatchObject({ state: 'writable', exists: true });
    const facts = await inspectFolder(join(dir, 'a', 'b'));
    expect(facts).toMatchObject({ state: 'writable', exists: false });
    expect(facts.state === 'writable' && facts.freeBytes > 0).toBe(true);
  });

  test('a folder below a file is unusable, and the file is named', async () => {
    writeFileSync(join(dir, 'file'), '');
    expect(await inspectFolder(join(dir, 'file'))).toMatchObject({
      state: 'unusable',
      reason: `${join(dir, 'file')} is not a folder`,
    });
    expect(await inspectFolder(join(dir, 'file', 'data'))).toMatchObject({ state: 'unusable' });
  });

  test('a folder that accepts no files is unusable, whatever its permission bits say', async () => {
    // Not even root can make a file there.
    expect(await inspectFolder('/proc')).toMatchObject({ state: 'unusable', path: '/proc' });
  });
});

describe('ONNX Runtime', () => {
  test('ONNX Runtime loads here and lists its providers', async () => {
    const facts = await inspectRuntime();
    expect(facts).toMatchObject({ state: 'loads' });
    expect(facts.state === 'loads' && facts.providers).toContainEqual({ name: 'cpu', bundled: true });
  });

  test.each([
    ['kill -ILL $$', 'the process ended by SIGILL'],
    [
      'echo "Error: libstdc++.so.6: cannot open shared object file" >&2; exit 1',
      'libstdc++.so.6: cannot open shared object file',
    ],
    ['echo no list', 'it loads, but does not list its execution providers'],
  ])('ONNX Runtime whose process does "%s" fails with a reason', async (script, reason) => {
    const command = join(dir, 'node');
    writeFileSync(command, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    expect(await inspectRuntime(command)).toMatchObject({ state: 'fails', reason });
  });
});

function config(): HostConfig {
  return loadConfig({ environment: {}, flags: { functionsDir: dir } }).config;
}

function write(name: string, files: Record<string, string>): void {
  mkdirSync(join(dir, name));
  for (const [file, text] of Object.entries(files)) writeFileSync(join(dir, name, file), text);
}

describe('the functions folder', () => {
  test('the functions folder lists good and broken functions, with the reason for each broken one', async () => {
    write('good', { 'function.json': '\uFEFF{"handler": "handler.ts"}', 'model.onnx': '12345', 'handler.ts': '' });
    write('no-model', { 'function.json': '{"model": "other.onnx"}', 'model.onnx': '' });
    write('no-handler', { 'function.json': '{"handler": "gone.ts"}', 'model.onnx': '' });
    write('not-json', { 'function.json': '{', 'model.onnx': '' });
    write('typo', { 'function.json': '{"sloo": "1s"}', 'model.onnx': '' });
    write('Not A Name', { 'function.json': '{}', 'model.onnx': '' });
    write('no-function', { 'README.md': '' });
    write('.hidden', { 'function.json': '{' });
    write('_shared', { 'helper.ts': '' });
    const facts = await inspectFunctions(config());
    expect(facts.state === 'read' && facts.functions).toEqual([
      { state: 'broken', name: 'Not A Name', reason: 'its folder does not have the name of a function' },
      { state: 'good', name: 'good', modelBytes: 5, handler: 'handler.ts' },
      { state: 'broken', name: 'no-handler', reason: 'its file gone.ts is missing' },
      { state: 'broken', name: 'no-model', reason: 'its file other.onnx is missing' },
      {
        state: 'broken',
        name: 'not-json',
        reason: expect.stringMatching(/^function\.json: it is not JSON /) as string,
      },
      { state: 'broken', name: 'typo', reason: expect.stringContaining('sloo') as string },
    ]);
  });

  test('the functions folder that is missing is unusable', async () => {
    rmSync(dir, { recursive: true });
    expect(await inspectFunctions(config())).toMatchObject({ state: 'unusable', path: dir });
  });
});
