/** Limits on another process or thread while this one is delayed itself. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { afterEach, expect, test, vi } from 'vitest';
import { Watchdog } from './watchdog.ts';

const limitMs = 20;
let worker: Worker | undefined;

afterEach(async () => await worker?.terminate());

/** A thread that answers each message at once, and sets a flag in shared memory when its answer is on the way. */
async function startEcho(): Promise<{ readonly echo: Worker; readonly answered: Int32Array }> {
  const answered = new Int32Array(new SharedArrayBuffer(4));
  const text = `
    const { parentPort, workerData } = require('node:worker_threads');
    parentPort.on('message', (message) => {
      parentPort.postMessage(message);
      Atomics.store(workerData, 0, 1);
      Atomics.notify(workerData, 0);
    });
    parentPort.postMessage('started');`;
  const echo = (worker = new Worker(text, { eval: true, workerData: answered }));
  await once(echo, 'message');
  return { echo, answered };
}

/** Like a process that is stopped until after the limit. Its event loop then runs the timers first. */
async function standStill(answered: Int32Array): Promise<void> {
  await new Promise<void>((resolve) => {
    setImmediate(() => {
      Atomics.wait(answered, 0, 0);
      for (const endMs = performance.now() + 2 * limitMs; performance.now() < endMs;);
      resolve();
    });
  });
}

test('an answer that came in time counts, though the process was held up past the limit before it read it', async () => {
  const { echo, answered } = await startEcho();
  const watchdog = new Watchdog();
  const outcome = new Promise((resolve) => {
    watchdog.arm(limitMs, () => resolve('expired'));
    echo.once('message', (message) => {
      watchdog.disarm();
      resolve(message);
    });
  });
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
  echo.postMessage('the answer');
  await standStill(answered);
  expect(await outcome).toBe('the answer');
});

test('a missing answer is reported after a stand-still too, once', async () => {
  const { answered } = await startEcho();
  const watchdog = new Watchdog();
  let times = 0;
  const expired = new Promise<void>((resolve) => {
    watchdog.arm(limitMs, () => {
      times++;
      resolve();
    });
  });
  Atomics.store(answered, 0, 1);
  await standStill(answered);
  await expired;
  watchdog.arm(limitMs, () => times++);
  watchdog.disarm();
  expect(times).toBe(1);
});

test('an answer that is followed by the next step is held to the limit of that step', async () => {
  const { echo, answered } = await startEcho();
  const watchdog = new Watchdog();
  const outcome = new Promise((resolve) => {
    watchdog.arm(limitMs, () => resolve('the first step expired'));
    echo.once('message', () => watchdog.arm(limitMs, () => resolve('the second step expired')));
  });
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
  echo.postMessage('the first step is over');
  await standStill(answered);
  expect(await outcome).toBe('the second step expired');
});

test('half of each limit is told once, and not of what was done by then', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'performance'] });
  try {
    const watchdog = new Watchdog();
    const told: string[] = [];
    const arm = (what: string): void =>
      watchdog.arm(
        1000,
        () => told.push(`${what} expired`),
        () => told.push(`half of ${what}`),
      );
    arm('the first');
    await vi.advanceTimersByTimeAsync(499);
    arm('the second');
    await vi.advanceTimersByTimeAsync(999);
    expect(told).toEqual(['half of the second']);
    arm('the third');
    watchdog.disarm();
    await vi.advanceTimersByTimeAsync(5000);
    arm('the fourth');
    await vi.advanceTimersByTimeAsync(1010);
    expect(told).toEqual(['half of the second', 'half of the fourth', 'the fourth expired']);
  } finally {
    vi.useRealTimers();
  }
});
