import { EventEmitter } from 'node:events';
import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { silentLog } from '../../test/support/silent-log.ts';
import { outliveDefects } from './uncaught.ts';

interface Watched {
  readonly source: EventEmitter;
  readonly lines: string[];
  readonly exits: number[];
  nowMs: number;
  readonly stop: () => void;
}

function watch(): Watched {
  const watched = { source: new EventEmitter(), lines: [] as string[], exits: [] as number[], nowMs: 0 };
  const stop = outliveDefects({
    source: watched.source,
    log: { ...silentLog, error: (fields, text) => void watched.lines.push(text + inspect(fields)) },
    exit: (code) => watched.exits.push(code),
    nowMs: () => watched.nowMs,
  });
  return Object.assign(watched, { stop });
}

test('an uncaught error is logged with its stack, and the host goes on', () => {
  const { source, lines, exits } = watch();
  source.emit('uncaughtException', new Error('a stream broke'));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatch(/goes on[\s\S]*a stream broke[\s\S]*uncaught\.test/);
  expect(exits).toEqual([]);
});

test('eleven uncaught errors within a minute end the host', () => {
  const watched = watch();
  for (let count = 0; count < 10; count++) watched.source.emit('uncaughtException', new Error('again'));
  expect(watched.exits).toEqual([]);
  watched.source.emit('uncaughtException', new Error('again'));
  expect(watched.exits).toEqual([1]);
});

test('eleven uncaught errors over a longer time do not end it', () => {
  const watched = watch();
  for (let count = 0; count < 40; count++) {
    watched.nowMs += 7000;
    watched.source.emit('uncaughtException', new Error('now and then'));
  }
  expect(watched.exits).toEqual([]);
});

test('the handler can be removed', () => {
  const { source, stop } = watch();
  stop();
  expect(source.listenerCount('uncaughtException')).toBe(0);
});
