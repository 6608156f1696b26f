import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
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
    log: (line) => watched.lines.push(line),
    exit: (code) => watched.exits.push(code),
    nowMs: () => watched.nowMs,
  });
  return Object.assign(watched, { stop });
}

test('an error that nothing caught is told with its stack, and the host goes on', () => {
  const { source, lines, exits } = watch();
  source.emit('uncaughtException', new Error('a stream broke'));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatch(/goes on[\s\S]*a stream broke[\s\S]*uncaught\.test/);
  expect(exits).toEqual([]);
});

test('eleven of them within a minute end it', () => {
  const watched = watch();
  for (let count = 0; count < 10; count++) watched.source.emit('uncaughtException', new Error('again'));
  expect(watched.exits).toEqual([]);
  watched.source.emit('uncaughtException', new Error('again'));
  expect(watched.exits).toEqual([1]);
});

test('as many over a longer time do not', () => {
  const watched = watch();
  for (let count = 0; count < 40; count++) {
    watched.nowMs += 7000;
    watched.source.emit('uncaughtException', new Error('now and then'));
  }
  expect(watched.exits).toEqual([]);
});

test('nothing is left behind when it is taken away', () => {
  const { source, stop } = watch();
  stop();
  expect(source.listenerCount('uncaughtException')).toBe(0);
});
