import { Writable } from 'node:stream';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import { FunctionLog, withFunctionLog, type LogEntry } from './function-log.ts';

const line = (text: string): Pick<LogEntry, 'source' | 'level' | 'text'> => ({
  source: 'handler',
  level: 'info',
  text,
});
const texts = (log: FunctionLog, name: string): string[] => log.of(name).map(({ text }) => text);

test('a function keeps its newest lines, and says how many came too fast', () => {
  let nowMs = 1000;
  const log = new FunctionLog({ now: () => nowMs });
  for (let second = 0; second < 6; second++) {
    for (let index = 0; index < 100; index++) log.add('one@2', line(`${second}.${index}`));
    nowMs += 1000;
  }
  expect(texts(log, 'one')).toHaveLength(500);
  expect(texts(log, 'one').at(0)).toBe('1.0');
  expect(log.of('one', 1)).toMatchObject([{ version: '2', source: 'handler', text: '5.99' }]);
  expect(log.of('one', 0)).toEqual([]);
  for (let index = 0; index < 150; index++) log.add('one', line('fast'));
  nowMs += 1000;
  log.add('one', line('later'));
  expect(texts(log, 'one').slice(-2)).toEqual(['50 lines were left out: more than 100 a second', 'later']);
});

test('all functions together are bounded: the one that was silent longest goes first', () => {
  let nowMs = 0;
  const log = new FunctionLog({ bytesMax: 10_000, now: () => (nowMs += 1000) });
  log.add('silent', line('x'.repeat(1000)));
  log.add('early', line('y'.repeat(1000)));
  log.add('silent', line('z'));
  for (let index = 0; index < 3; index++) log.add('late', line('w'.repeat(1000)));
  expect(texts(log, 'early')).toEqual([]);
  expect(texts(log, 'silent')).toHaveLength(2);
  // A function that exceeds the limit by itself still keeps its own lines.
  for (let index = 0; index < 9; index++) log.add('late', line('w'.repeat(3000)));
  expect(texts(log, 'silent')).toEqual([]);
  expect(texts(log, 'late')).toHaveLength(12);
  log.forget('late');
  log.add('other', line('x'.repeat(4000)));
  expect(texts(log, 'other')).toHaveLength(1);
});

test('a listener gets the lines of its function alone, until it is done', () => {
  const log = new FunctionLog();
  const got: string[] = [];
  const stop = log.listen('one', ({ text }) => got.push(text));
  log.add('one', line('a'));
  log.add('other', line('b'));
  stop();
  log.add('one', line('c'));
  expect(got).toEqual(['a']);
});

test("the host's records about a function are in its log, whatever the host's own level lets through", () => {
  const written: string[] = [];
  const out = new Writable({
    write(chunk, _encoding, done) {
      written.push(String(chunk));
      done();
    },
  });
  const log = new FunctionLog();
  const logger = withFunctionLog(pino({ level: 'warn' }, out), log);
  logger.info({ function: 'one@1', took: 3 }, 'measured');
  logger.info({ other: 1 }, 'of no function');
  logger.warn({ function: 'one', code: 'x', error: 'no room', requestId: 'r', callId: 'r' }, 'request failed');
  logger.level = 'silent';
  logger.error({ function: 'one', err: new Error('inside') }, 'broken');
  logger.error('words alone');
  expect(written).toHaveLength(1);
  expect(JSON.parse(written[0] ?? '')).toMatchObject({ msg: 'request failed', error: 'no room', callId: 'r' });
  expect(log.of('one').map(({ level, version }) => [level, version])).toEqual([
    ['info', '1'],
    ['warn', null],
    ['error', null],
  ]);
  expect(texts(log, 'one').slice(0, 2)).toEqual(['measured took=3', 'request failed: no room code=x requestId=r']);
  expect(texts(log, 'one')[2]).toMatch(/^broken\nError: inside\n +at /);
});
