import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { runUntilSignal } from './lifecycle.ts';

let source: EventEmitter;
let said: [fields: object, message: string][];

beforeEach(() => {
  vi.useFakeTimers();
  source = new EventEmitter();
  said = [];
});

afterEach(() => {
  vi.useRealTimers();
});

const say = (...words: [fields: object, message: string]): void => void said.push(words);
const log = { info: say, warn: say, error: say };

/** As Node emits signals: by name, with the name as the argument. */
function send(signal: NodeJS.Signals): void {
  source.emit(signal, signal);
}

function run(stop: () => Promise<boolean>, drainMs = 1000): Promise<number> {
  return runUntilSignal({ stop }, { drainMs, source, isFromTerminal: true, log });
}

test.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('%s drains, and a clean drain is exit code 0', async (signal) => {
  const stop = vi.fn<() => Promise<boolean>>(() => Promise.resolve(true));
  const exitCode = run(stop);
  expect(stop).not.toHaveBeenCalled();
  send(signal);
  expect(await exitCode).toBe(0);
  expect(stop).toHaveBeenCalledOnce();
  expect(said).toEqual([[{ signal }, 'finishing accepted requests; a second signal ends at once']]);
  expect(source.eventNames()).toEqual([]);
});

test('a drain that cuts requests off gives exit code 1', async () => {
  const exitCode = run(() => Promise.resolve(false));
  send('SIGTERM');
  expect(await exitCode).toBe(1);
  expect(said.at(-1)?.[1]).toContain('the drain limit passed');
});

test('the process exits after the limit when the host never stops', async () => {
  const exitCode = run(async () => await new Promise(() => undefined));
  send('SIGTERM');
  await vi.advanceTimersByTimeAsync(6000);
  expect(await exitCode).toBe(1);
});

test('a second signal ends the process at once, with the exit code of that signal', async () => {
  const exitCode = run(async () => await new Promise(() => undefined));
  send('SIGTERM');
  send('SIGINT');
  expect(await exitCode).toBe(130);
});

test('a failure to stop is reported and gives exit code 1', async () => {
  const exitCode = run(() => Promise.reject(new Error('a socket is stuck')));
  send('SIGINT');
  expect(await exitCode).toBe(1);
  expect(said).toContainEqual([{ err: new Error('a socket is stuck') }, 'stopping failed']);
});

test('without a terminal SIGHUP reloads, each time, and ends nothing', async () => {
  const [stop, reload] = [vi.fn<() => Promise<boolean>>(() => Promise.resolve(true)), vi.fn<() => void>()];
  const exitCode = runUntilSignal({ stop }, { drainMs: 1000, source, isFromTerminal: false, reload, log });
  send('SIGHUP');
  send('SIGHUP');
  expect(reload).toHaveBeenCalledTimes(2);
  expect(stop).not.toHaveBeenCalled();
  send('SIGTERM');
  send('SIGHUP');
  expect(await exitCode).toBe(0);
  expect(source.eventNames()).toEqual([]);
});
