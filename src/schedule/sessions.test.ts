import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ServedFunction } from './function.ts';
import { named } from './ids.ts';
import { Popularity } from './learnt.ts';
import { Orders } from './orders.ts';
import { policies } from './policy.ts';
import { Sessions } from './sessions.ts';
import type { Action } from './types.ts';

const roomBytes = 100;

/** Sessions of some functions in a room, and what was closed so far: `1`, or `1 spare`. */
function open({ functions = 4, pinned = [] as readonly number[] } = {}) {
  const closed: string[] = [];
  const add = (action: Action): void => {
    if (action.kind === 'evict-cpu') closed.push(`${action.functionIndex}${action.isSpare === true ? ' spare' : ''}`);
  };
  const popularity = new Popularity();
  popularity.grow(functions);
  const sessions = new Sessions(roomBytes, popularity, Object.assign(new Orders(), { add }));
  const all = Array.from({ length: functions }, (_, number) => {
    const cpu = { latencyMs: 1, cores: 1, isPinned: pinned.includes(number) };
    return new ServedFunction(named(number), { gpus: [], cpu, sloMs: 100, priority: 0, pinned: false }, policies.best);
  });
  /** A run that makes a session, and its end. */
  const run = (number: number, bytes: number, loadMs = 10): void => {
    popularity.use(number);
    sessions.open(all[number]!, { bytes, runs: 1, loadMs, readyMs: 0 });
    sessions.end(all[number]!);
  };
  return { sessions, all, closed, run, use: (number: number) => popularity.use(number) };
}

test('the session that is cheapest to make again goes first, and what is pinned goes last', () => {
  const { sessions, all, closed, run } = open({ pinned: [0] });
  run(0, 40, 1);
  run(1, 40, 50);
  run(2, 20, 5);
  run(3, 30, 10);
  expect(closed).toEqual(['1']);
  sessions.want(all[1]!, 60, 'first');
  expect(closed).toEqual(['1', '2', '3']);
  sessions.want(all[1]!, 100, 'first');
  expect(closed.at(-1)).toBe('0');
});

test('spare sessions go one by one before any function loses its last, and only they go for another spare one', () => {
  const { sessions, all, closed, run } = open();
  run(0, 30);
  sessions.set(all[0]!, 90, 2, 10, 0);
  run(1, 10);
  sessions.want(all[1]!, 30, 'spare');
  expect(closed).toEqual(['0 spare']);
  sessions.want(all[1]!, 90, 'spare');
  expect(closed).toEqual(['0 spare', '0 spare']);
  expect(sessions.of(all[0]!)).toMatchObject({ bytes: 30, spares: 0 });
});

test('sessions however small go for the first one of a function when nothing runs, and not while something does', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 6 }),
      fc.boolean(),
      (sizes, isBusy) => {
        const { sessions, all, closed, run } = open({ functions: sizes.length + 2 });
        for (const [number, bytes] of sizes.entries()) run(number, bytes);
        const [running, wanting] = all.slice(sizes.length) as [ServedFunction, ServedFunction];
        // One that waits for its session to be made gives no room either.
        sessions.open(running, { bytes: 10, runs: 1, loadMs: 1, readyMs: isBusy ? 0 : 1 });
        // What the processes themselves take is more than there is.
        sessions.setRoom(-1000);
        sessions.want(wanting, 5, 'first');
        expect(closed).toHaveLength(isBusy ? 0 : sizes.length);
      },
    ),
  );
});

test('instances that will take over take the room of sessions that are worth less than their function has, and no other', () => {
  const { sessions, all, closed, run } = open();
  run(0, 30, 20);
  run(1, 30, 1);
  run(2, 30, 50);
  sessions.want(all[0]!, 40, 'list');
  expect(closed).toEqual(['1']);
  sessions.want(all[0]!, 80, 'list');
  expect(closed).toEqual(['1']);
  sessions.want(all[3]!, 80, 'list');
  expect(closed).toEqual(['1']);
});

test('a session with a run stays, and goes at the end of the run for one that found no room', () => {
  const { sessions, all, closed, use } = open();
  use(0);
  sessions.open(all[0]!, { bytes: 80, runs: 1, loadMs: 10, readyMs: 0 });
  sessions.want(all[1]!, 50, 'first');
  expect(closed).toEqual([]);
  expect(sessions.hasRoomFor(20)).toBe(false);
  sessions.end(all[0]!);
  expect(closed).toEqual(['0']);
});

test('what nothing has used for long is closed, but for one in which a run has been ordered, and those beyond the first alone', () => {
  const { sessions, all, closed, run } = open();
  run(0, 30);
  sessions.begin(all[0]!, 10);
  sessions.isIdle(all[0]!, false);
  expect(closed).toEqual([]);
  sessions.end(all[0]!);
  sessions.isIdle(all[0]!, false);
  expect(closed).toEqual(['0']);
  run(1, 20);
  sessions.set(all[1]!, 60, 2, 10, 0);
  sessions.begin(all[1]!, 10);
  sessions.isIdle(all[1]!, true);
  expect(closed).toEqual(['0', '1 spare']);
  expect(sessions.of(all[1]!)).toMatchObject({ bytes: 40, spares: 1 });
  // A handler without its model is in no book.
  sessions.isIdle(all[2]!, false);
  expect(closed).toEqual(['0', '1 spare', '2']);
});

test('a small session stays where the room has to come from one in which something runs', () => {
  const { sessions, all, closed, run, use } = open({ functions: 5 });
  for (const small of [0, 1, 2]) run(small, 1 / 16);
  use(3);
  sessions.open(all[3]!, { bytes: 90, runs: 1, loadMs: 10, readyMs: 0 });
  sessions.want(all[4]!, 50, 'first');
  expect(closed).toEqual([]);
  sessions.end(all[3]!);
  expect(closed).toEqual(['3']);
});

test('among any neighbours, no session goes whose bytes the others that go make unnecessary', () => {
  const neighbour = fc.record({
    bytes: fc.oneof(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 60 })),
    loadMs: fc.integer({ min: 1, max: 50 }),
    runs: fc.boolean(),
    calls: fc.integer({ min: 1, max: 4 }),
  });
  const smallShare = 1 / 64;
  fc.assert(
    fc.property(fc.array(neighbour, { maxLength: 8 }), fc.integer({ min: 1, max: 100 }), (neighbours, wantedBytes) => {
      const { sessions, all, closed, use } = open({ functions: neighbours.length + 1 });
      let usedBytes = 0;
      const there = new Map<number, (typeof neighbours)[number]>();
      for (const [number, each] of neighbours.entries()) {
        if (usedBytes + each.bytes > roomBytes) continue;
        usedBytes += each.bytes;
        there.set(number, each);
        for (let call = 0; call < each.calls; call++) use(number);
        sessions.open(all[number]!, { bytes: each.bytes, runs: 1, loadMs: each.loadMs, readyMs: 0 });
        if (!each.runs) sessions.end(all[number]!);
      }
      sessions.want(all.at(-1)!, wantedBytes, 'first');
      const missingBytes = usedBytes + wantedBytes - roomBytes;
      const idle = [...there].filter(([, { runs }]) => !runs);
      const idleBytes = idle.reduce((sum, [, { bytes }]) => sum + bytes, 0);
      const gone = closed.map((number) => there.get(Number(number))!.bytes);
      const goneBytes = gone.reduce((sum, bytes) => sum + bytes, 0);
      const large = idle.filter(([, { bytes }]) => bytes >= missingBytes * smallShare);
      const expected =
        missingBytes <= 0
          ? gone.length === 0
          : idleBytes >= missingBytes
            ? goneBytes >= missingBytes && gone.every((bytes) => goneBytes - bytes < missingBytes)
            : closed.toSorted().join() ===
              large
                .map(([number]) => String(number))
                .toSorted()
                .join();
      expect(expected, `of ${JSON.stringify([...there])} went ${closed.join()} for ${wantedBytes}`).toBe(true);
    }),
  );
});

test('one that wants no room any more costs no session', () => {
  const { sessions, all, closed, use } = open();
  use(0);
  sessions.open(all[0]!, { bytes: 80, runs: 1, loadMs: 10, readyMs: 0 });
  sessions.want(all[1]!, 50, 'first');
  sessions.want(all[1]!, 0, 'first');
  sessions.end(all[0]!);
  expect(closed).toEqual([]);
  expect(sessions.hasRoomFor(20)).toBe(true);
});

test('a room that becomes smaller closes what does not fit; where nothing runs, any session can be made', () => {
  const { sessions, closed, run } = open();
  run(0, 40);
  run(1, 40);
  sessions.setRoom(50);
  expect(closed).toHaveLength(1);
  sessions.setRoom(10);
  expect(closed).toHaveLength(2);
  expect(sessions.hasRoomFor(40)).toBe(true);
});

test('whatever comes and goes, what is counted is what is there, and what runs is never closed but for spare ones', () => {
  const step = fc.record({
    what: fc.constantFrom('begin', 'end', 'measured', 'gone', 'want', 'room'),
    of: fc.nat(3),
    bytes: fc.integer({ min: 1, max: 60 }),
    spares: fc.nat(2),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const { sessions, all, closed, use } = open();
      const runs = [0, 0, 0, 0];
      for (const { what, of, bytes, spares } of steps) {
        const fn = all[of]!;
        const before = closed.length;
        if (what === 'begin') {
          use(of);
          if (sessions.of(fn) !== undefined) sessions.begin(fn, 10);
          else if (!sessions.hasRoomFor(bytes)) continue;
          else sessions.open(fn, { bytes, runs: runs[of]! + 1, loadMs: 10, readyMs: 0 });
          runs[of]!++;
        } else if (what === 'end' && runs[of]! > 0) {
          runs[of]!--;
          sessions.end(fn);
        } else if (what === 'measured') sessions.set(fn, bytes, spares, 10, runs[of]!);
        else if (what === 'gone') sessions.set(fn, 0, 0, 10, runs[of]!);
        else if (what === 'want') sessions.want(fn, bytes, (['first', 'spare', 'list'] as const)[spares]!);
        else if (what === 'room') sessions.setRoom(bytes + 40);
        const whole = closed.slice(before).filter((gone) => !gone.endsWith('spare'));
        expect(whole.filter((gone) => runs[Number(gone)]! > 0)).toEqual([]);
      }
      // Nothing runs any more: then all there is can be closed, and no byte is left in the books.
      for (const [number, fn] of all.entries()) {
        for (; runs[number]! > 0; runs[number]!--) sessions.end(fn);
        sessions.want(fn, 0, 'first');
      }
      expect(sessions.hasRoomFor(1e9)).toBe(true);
      sessions.setRoom(0);
      for (const fn of all) expect(sessions.of(fn)).toBeUndefined();
    }),
  );
});
