import { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { arrivalMsOf, RequestTurns } from './request-turns.ts';

const requestTo = (url: string) => ({ url, socket: new Socket() });

test('requests of a path that come at once are begun in their order, 16 in each turn of the event loop', async () => {
  const turns = new RequestTurns();
  const begun: number[] = [];
  for (let request = 0; request < 100; request++) turns.begin(requestTo('/a'), () => begun.push(request));
  const counts = [begun.length];
  while (begun.length < 100) {
    await nextTurn();
    counts.push(begun.length);
  }
  expect(counts).toEqual([16, 32, 48, 64, 80, 96, 100]);
  expect(begun).toEqual(Array.from({ length: 100 }, (_, request) => request));
  // A single next one does not wait.
  await nextTurn();
  turns.begin(requestTo('/a'), () => begun.push(100));
  expect(begun.at(-1)).toBe(100);
});

test('a request that comes while others of its path wait is begun after them', async () => {
  const turns = new RequestTurns();
  const begun: number[] = [];
  for (let request = 0; request < 20; request++) turns.begin(requestTo('/a'), () => begun.push(request));
  await nextTurn();
  turns.begin(requestTo('/a'), () => begun.push(20));
  await nextTurn();
  expect(begun).toEqual(Array.from({ length: 21 }, (_, request) => request));
});

test('a request of another path is begun in the next turn, whatever waits', async () => {
  const turns = new RequestTurns();
  const begun: string[] = [];
  for (let request = 0; request < 1000; request++)
    turns.begin(requestTo(`/flood?${request}`), () => begun.push('flood'));
  turns.begin(requestTo('/quiet'), () => begun.push('quiet'));
  await nextTurn();
  expect(begun).toHaveLength(32);
  expect(begun.indexOf('quiet')).toBe(17);
  while (begun.length < 1001) await nextTurn();
  expect(begun.filter((path) => path === 'flood')).toHaveLength(1000);
});

describe('when a request has arrived', () => {
  let nowMs = 0;
  beforeEach(() => {
    nowMs = 1000;
    vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });

  test('on a host that slept: when it was found', async () => {
    const turns = new RequestTurns();
    turns.begin(requestTo('/a'), () => undefined);
    nowMs = 1200;
    await nextTurn();
    const later = requestTo('/a');
    nowMs = 1300;
    turns.begin(later, () => undefined);
    expect(arrivalMsOf(later)).toBe(1300);
  });

  test('after a turn that took 200 ms: when that turn looked for news', async () => {
    const turns = new RequestTurns();
    turns.begin(requestTo('/a'), () => (nowMs = 1200));
    await nextTurn();
    const [second, third] = [requestTo('/a'), requestTo('/b')];
    turns.begin(second, () => (nowMs = 1250));
    turns.begin(third, () => undefined);
    expect([second, third].map(arrivalMsOf)).toEqual([1000, 1000]);
    await nextTurn();
    const fourth = requestTo('/a');
    turns.begin(fourth, () => undefined);
    expect(arrivalMsOf(fourth)).toBe(1200);
  });

  test('if it waits for its turn: when it was found, not when it began', async () => {
    const turns = new RequestTurns();
    const requests = Array.from({ length: 17 }, () => requestTo('/a'));
    for (const request of requests) turns.begin(request, () => nowMs++);
    await nextTurn();
    expect(nowMs).toBe(1017);
    expect(new Set(requests.map(arrivalMsOf))).toEqual(new Set([1000]));
  });

  test('on a new connection: when the loop began to accept one in each turn', async () => {
    const turns = new RequestTurns();
    const sockets = Array.from({ length: 10 }, () => new Socket());
    const arrivals: number[] = [];
    for (const [index, socket] of sockets.entries()) {
      // It brings its request with it, which is found in the next turn.
      const before = index === 0 ? undefined : { url: '/a', socket: sockets[index - 1]! };
      if (before !== undefined) turns.begin(before, () => undefined);
      turns.accept(socket);
      nowMs += 100;
      await nextTurn();
      if (before !== undefined) arrivals.push(arrivalMsOf(before));
    }
    expect(new Set(arrivals)).toEqual(new Set([1000]));
    // A turn without a new connection: none waits any more.
    turns.begin(requestTo('/a'), () => undefined);
    nowMs += 100;
    await nextTurn();
    const last = requestTo('/a');
    turns.accept(last.socket);
    await nextTurn();
    turns.begin(last, () => undefined);
    expect(arrivalMsOf(last)).toBe(2000);
  });
});

test('while connections come, 4 requests begin in each turn', async () => {
  const turns = new RequestTurns();
  let begun = 0;
  const counts: number[] = [];
  for (let turn = 0; turn < 4; turn++) {
    for (let request = 0; request < 40; request++) turns.begin(requestTo('/a'), () => begun++);
    if (turn < 2) turns.accept(new Socket());
    counts.push(begun);
    await nextTurn();
  }
  expect(counts).toEqual([16, 20, 24, 40]);
});
