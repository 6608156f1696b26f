import { describe, expect, test } from 'vitest';
import type { ListedFunction } from '../host/index.ts';
import { describeFunctions, listenError } from './serve.ts';

const url = 'http://127.0.0.1:8000';

function listed(changed: Partial<ListedFunction>): Partial<ListedFunction> {
  return { name: 'x', state: 'ready', description: 'What it does.', ...changed };
}

describe('the functions on the terminal', () => {
  test('the functions on the terminal are a table, with the calls of their examples', () => {
    const text = describeFunctions(url, [
      listed({ name: 'language-id', example: "Où est l'hôtel ?" }),
      listed({ name: 'x' }),
      listed({ name: 'off', state: 'unavailable', example: 'never' }),
    ]);
    expect(text).toBe(
      [
        'FUNCTION     STATE        DESCRIPTION',
        'language-id  ready        What it does.',
        'x            ready        What it does.',
        'off          unavailable  What it does.',
        '',
        'Try:',
        String.raw`  curl -s --data 'Où est l'\''hôtel ?' ${url}/function/language-id`,
      ].join('\n'),
    );
  });

  test('the functions on the terminal name the command that publishes one when there are none', () => {
    expect(describeFunctions(url, [])).toContain(`curl -T model.onnx ${url}/functions/my-model`);
  });

  test('the functions on the terminal have the reason in place of the description when a function cannot serve', () => {
    const text = describeFunctions(url, [listed({ state: 'unavailable', reason: 'its model is missing' })]);
    expect(text).toContain('unavailable  its model is missing');
    expect(text).not.toContain('What it does.');
  });

  test('the functions on the terminal of a host that tells less of them are shown as far as they are known', () => {
    expect(describeFunctions(url, [{}, listed({})])).toContain('x         ready  What it does.');
  });

  test('the functions on the terminal fit the width of the terminal, without control characters', () => {
    const text = describeFunctions(url, [listed({ description: `\u001B[2J${'long '.repeat(50)}` })], 60);
    const table = text.split('\n').slice(0, 2);
    expect(table.every((line) => line.length <= 60)).toBe(true);
    expect(table[1]).toMatch(/…$/);
    expect(text).not.toContain('\u001B');
  });
});

describe('a host that cannot listen', () => {
  const config = { listen: { host: '127.0.0.1', port: 80 }, dataDir: '/data' };

  test.each([
    [{ code: 'EADDRINUSE', syscall: 'listen' }, /^port 80 on 127\.0\.0\.1 is in use by another program; .*--port/],
    [{ code: 'EADDRINUSE', grpcPort: 8001 }, /^port 8001 on 127\.0\.0\.1 is in use .*--grpc-port/],
    [{ code: 'EADDRNOTAVAIL', syscall: 'listen' }, /^this machine has no address 127\.0\.0\.1 .*--host$/],
    [{ code: 'EACCES', syscall: 'listen' }, /^port 80 needs privileges/],
    [{ code: 'EACCES', syscall: 'mkdir' }, /^the data folder \/data cannot be written: /],
    [{ code: 'ENOTFOUND', syscall: 'getaddrinfo' }, /^the name 127\.0\.0\.1 in listen\.host has no address$/],
  ])('the error %j of a host that cannot listen is told in words', (facts, message) => {
    const told = listenError(config, Object.assign(new Error('as the system says it'), facts));
    expect(told).toMatchObject({ name: 'CliError', exitCode: 1, message: expect.stringMatching(message) as string });
  });

  test('an error with another code stays as it is', () => {
    const error = new Error('a defect');
    expect(listenError(config, error)).toBe(error);
  });
});
