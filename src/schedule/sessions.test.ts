import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ServedFunction } from './function.ts';
import { named } from './ids.ts';
import { Popularity } from './learnt.ts';
import { Orders } from './orders.ts';
import { policies } from './policy.ts';
import { Sessions } from './sessions.ts';
import type { Action } from './types.ts';

const capacityBytes = 100;

/**
 * Sessions of some functions, which share {@link capacityBytes}. `closed` names those closed so far: `1`, or `1
 * spare`.
 */
function open({ functions = 4, pinned = [] as readonly number[] } = {}) {
  const closed: string[] = [];
  const add = (action: Action): void => {
    if (action.kind === 'evict-cpu') closed.push(`${action.functionIndex}${action.isSpare === true ? ' spare' : ''}`);
  };
  const popularity = new Popularity();
  popularity.grow(functions);
  const sessions = new Sessions(capacityBytes, popularity, Object.assign(new Orders(), { add }));
  const all = Array.from({ length: functions }, (_, number) => {
    const cpu = { latencyMs: 1, cores: 1, isPinned: pinned.includes(number) };
    return new ServedFunction(named(number), { gpus: [], cpu, sloMs: 100, priority: 0, pinned: false }, policies.best);
  });
  /** Makes a session by a run, and ends the run. */
  const run = (number: number, bytes: number, loadMs = 10): void => {
    popularity.use(number);
    sessions.open(all[number]!, { bytes, runs: 1, loadMs, readyMs: 0 });
    sessions.end(all[number]!);
  };
  return { sessions, all, closed, run, use: (number: number) => popularity.use(number) };
}

test('the session that is cheapest to make again is closed first, and a pinned one last', () => {
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

test('spare sessions are closed one by one before any function loses its last; only they are closed for another spare one', () => {
  const { sessions, all, closed, run } = open();
  run(0, 30);
  sessions.set(all[0]!, 90, 2, 10, 0);
  run(1, 10);
  sessions.want(all[1]!, 30, 'spare');
  expect(closed).toEqual(['0 spare']);
  sessions.want(all[1]!, 90, 'spare');
  expect(closed).toEqual(['0 spare', '0 spare']);
  expect(sessions.of(all[0]!)).toMatchObject({ bytes: 30, spares: 0 });
  // A function does not close one of its own to make another, and its idle ones are no other function's.
  sessions.set(all[2]!, 60, 1, 10, 0);
  sessions.want(all[2]!, 30, 'spare');
  sessions.isIdle(all[1]!, true);
  expect(closed).toHaveLength(2);
  expect(sessions.of(all[2]!)).toMatchObject({ bytes: 60, spares: 1 });
});

test('even small sessions are closed for the first session of a function when nothing runs, and stay while something runs', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 6 }),
      fc.boolean(),
      (sizes, isBusy) => {
        const { sessions, all, closed, run } = open({ functions: sizes.length + 2 });
        for (const [number, bytes] of sizes.entries()) run(number, bytes);
        const [running, wanting] = all.slice(sizes.length) as [ServedFunction, ServedFunction];
        // A run that waits for its session to be made frees no memory either.
        sessions.open(running, { bytes: 10, runs: 1, loadMs: 1, readyMs: isBusy ? 0 : 1 });
        // The processes alone take more memory than there is.
        sessions.setRoom(-1000);
        sessions.want(wanting, 5, 'first');
        expect(closed).toHaveLength(isBusy ? 0 : sizes.length);
      },
    ),
  );
});

test('the instances of a new configuration evict sessions that are worth less than their function, and no others', () => {
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

test('a session stays while it has a run, and is closed at the end of the run for a session that found no memory', () => {
  const { sessions, all, closed, use } = open();
  use(0);
  sessions.open(all[0]!, { bytes: 80, runs: 1, loadMs: 10, readyMs: 0 });
  sessions.want(all[1]!, 50, 'first');
  expect(closed).toEqual([]);
  expect(sessions.hasRoomFor(20)).toBe(false);
  sessions.end(all[0]!);
  expect(closed).toEqual(['0']);
});

test('an idle session is closed unless a run was ordered in it; then only its spare ones are', () => {
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
  // The scheduler has no record of an instance that holds a handler without its model.
  sessions.isIdle(all[2]!, false);
  expect(closed).toEqual(['0', '1 spare', '2']);
});

test('a small session stays where the memory has to come from a session in which something runs', () => {
  const { sessions, all, closed, run, use } = open({ functions: 5 });
  for (const small of [0, 1, 2]) run(small, 1 / 16);
  use(3);
  sessions.open(all[3]!, { bytes: 90, runs: 1, loadMs: 10, readyMs: 0 });
  sessions.want(all[4]!, 50, 'first');
  expect(closed).toEqual([]);
  sessions.end(all[3]!);
  expect(closed).toEqual(['3']);
});

test('no session is closed whose bytes are not needed beside those of the others that are closed', () => {
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
      const opened = new Map<number, (typeof neighbours)[number]>();
      for (const [number, each] of neighbours.entries()) {
        if (usedBytes + each.bytes > capacityBytes) continue;
        usedBytes += each.bytes;
        opened.set(number, each);
        for (let call = 0; call < each.calls; call++) use(number);
        sessions.open(all[number]!, { bytes: each.bytes, runs: 1, loadMs: each.loadMs, readyMs: 0 });
        if (!each.runs) sessions.end(all[number]!);
      }
      sessions.want(all.at(-1)!, wantedBytes, 'first');
      const missingBytes = usedBytes + wantedBytes - capacityBytes;
      const idle = [...opened].filter(([, { runs }]) => !runs);
      const idleBytes = idle.reduce((sum, [, { bytes }]) => sum + bytes, 0);
      const closedBytesEach = closed.map((number) => opened.get(Number(number))!.bytes);
      const closedBytes = closedBytesEach.reduce((sum, bytes) => sum + bytes, 0);
      const large = idle.filter(([, { bytes }]) => bytes >= missingBytes * smallShare);
      const expected =
        missingBytes <= 0
          ? closedBytesEach.length === 0
          : idleBytes >= missingBytes
            ? closedBytes >= missingBytes && closedBytesEach.every((bytes) => closedBytes - bytes < missingBytes)
            : closed.toSorted().join() ===
              large
                .map(([number]) => String(number))
                .toSorted()
                .join();
      expect(expected, `of ${JSON.stringify([...opened])}, ${closed.join()} were closed for ${wantedBytes} bytes`).toBe(
        true,
      );
    }),
  );
});

test('no session is closed for a function that wants no memory any more', () => {
  const { sessions, all, closed, use } = open();
  use(0);
  sessions.open(all[0]!, { bytes: 80, runs: 1, loadMs: 10, readyMs: 0 });
  sessions.want(all[1]!, 50, 'first');
  sessions.want(all[1]!, 0, 'first');
  sessions.end(all[0]!);
  expect(closed).toEqual([]);
  expect(sessions.hasRoomFor(20)).toBe(true);
});

test('sessions that do not fit into a smaller memory are closed; where nothing runs, any session can be made', () => {
  const { sessions, closed, run } = open();
  run(0, 40);
  run(1, 40);
  sessions.setRoom(50);
  expect(closed).toHaveLength(1);
  sessions.setRoom(10);
  expect(closed).toHaveLength(2);
  expect(sessions.hasRoomFor(40)).toBe(true);
});

test('no byte is miscounted in any order of events, and of a function that runs only spare sessions are closed', () => {
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
        const closedBefore = closed.length;
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
        const lastOnes = closed.slice(closedBefore).filter((name) => !name.endsWith('spare'));
        expect(lastOnes.filter((name) => runs[Number(name)]! > 0)).toEqual([]);
      }
      // Nothing runs any more, so all sessions can be closed, and then no byte may be counted.
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
