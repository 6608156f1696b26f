import { expect, test, vi } from 'vitest';
import { MemberChoice, shareMs, type FunctionOffer, type Member, type Membership } from './index.ts';

const [cold, warm] = ['a@1', 'b@1'];
const loaded: FunctionOffer = { ms: 5, isHeld: true, load: 0, callMs: 5, startMs: 0, lanes: 1 };
const unloaded: FunctionOffer = { ...loaded, ms: undefined, startMs: 60 };

type Follower = Parameters<Membership['follow']>[0];
/** By member. */
type Reports = Record<string, { kind?: 'host'; backlogMs: number; offers: Record<string, FunctionOffer> }>;

/** Members that report these; a report that is changed is heard again by `hear`. */
function choiceOf(reports: Reports) {
  const followers: Follower[] = [];
  const find = (name: string): Member => ({ kind: 'worker', name, cores: 1, ...reports[name] }) as unknown as Member;
  const membership = {
    follow: (follower: Follower) => void followers.push(follower),
    find,
    offers: {
      of: (field: string) =>
        new Map(
          Object.entries(reports).flatMap(([name, { offers }]) =>
            offers[field] === undefined ? [] : [[name, offers[field]] as const],
          ),
        ),
    },
  };
  const choice = new MemberChoice(membership as unknown as Membership);
  const best = (field: string): string => {
    const { member, ms } = choice.worker(field, new Set(), { wayMs: 0, fetchMs: 0 })!;
    return `${member} ${Math.round(ms)}`;
  };
  return { choice, best, hear: (name: string) => followers[0]!.heard!(find(name)) };
}

const idle = (): Reports[string] => ({
  backlogMs: 0,
  offers: { [cold]: unloaded, [warm]: loaded },
});

test('calls follow a function to the worker that starts it, until that worker reports otherwise', () => {
  const clock = vi.spyOn(performance, 'now').mockReturnValue(0);
  const reports: Reports = { first: idle(), second: idle() };
  const { choice, best, hear } = choiceOf(reports);
  const [home, other] = best(cold) === 'first 65' ? ['first', 'second'] : ['second', 'first'];
  expect(best(cold)).toBe(`${home} 65`);
  choice.give(cold, home);
  // The other could answer in 65 ms, and its calls would wait for that start.
  expect(best(cold)).toBe(`${home} 70`);
  expect(best(warm)).toBe(`${other} 5`);

  // A report that was written before the call came knows nothing of it.
  hear(home);
  expect(best(cold)).toBe(`${home} 65`);
  choice.give(cold, home);
  choice.taken(cold, home);
  expect(best(cold)).toBe(`${home} 5`);
  // It has been evicted there since, and one worker is as good as the other.
  clock.mockReturnValue(5000);
  hear(home);
  reports[home]!.backlogMs = 100;
  expect(best(cold)).toBe(`${other} 65`);
  clock.mockRestore();
});

test('calls leave a worker whose calls of the function wait longer than two starts elsewhere take', () => {
  const { choice, best } = choiceOf({
    first: { backlogMs: 0, offers: { [cold]: loaded } },
    second: { backlogMs: 0, offers: { [cold]: unloaded } },
  });
  const served: string[] = [];
  for (let call = 0; call < 60; call++) {
    const [name] = best(cold).split(' ');
    served.push(name!);
    choice.give(cold, name!);
  }
  const stayed = served.indexOf('second');
  expect(stayed).toBeGreaterThan(60 / 5);
  expect(stayed).toBeLessThan(served.length);
});

test('functions that no worker has loaded are divided over the workers, and each stays at its own', () => {
  const reports: Reports = {};
  const fields = Array.from({ length: 60 }, (_, index) => `f-${index}@1`);
  for (const name of ['first', 'second', 'third']) {
    reports[name] = { backlogMs: 0, offers: Object.fromEntries(fields.map((each) => [each, unloaded])) };
  }
  const { best } = choiceOf(reports);
  const homes = fields.map(best);
  expect(fields.map(best)).toEqual(homes);
  for (const name of Object.keys(reports)) {
    expect(homes.filter((home) => home.startsWith(name)).length).toBeGreaterThan(10);
  }
  // A worker that leaves moves its own functions alone.
  delete reports['third'];
  expect(fields.map(best).filter((home, index) => home !== homes[index])).toHaveLength(
    homes.filter((home) => home.startsWith('third')).length,
  );
});

test('a host counts as a worker does: its queue, what it was given since, and its way; not without the content', () => {
  const reports: Reports = {
    quick: { kind: 'host', backlogMs: 0, offers: { [warm]: loaded, [cold]: { ...unloaded, isHeld: false } } },
    other: { kind: 'host', backlogMs: 0, offers: { [warm]: { ...loaded, ms: 7 } } },
  };
  const { choice, hear } = choiceOf(reports);
  const answers = (field: string): Record<string, number> =>
    Object.fromEntries(
      Array.from(choice.offering(field, 'host'), ({ member, offer }) => [
        member.name,
        choice.candidate(field, member, offer, { wayMs: 1, ownMs: 3 }).ms,
      ]),
    );
  expect(answers(warm)).toEqual({ quick: 6, other: 8 });
  expect(answers(cold)).toEqual({ quick: Infinity });
  expect(choice.worker(warm, new Set(), { wayMs: 0 })).toBeUndefined();
  // Two calls that its report does not know of, until it reports again.
  for (let call = 0; call < 2; call++) choice.give(warm, 'quick');
  expect(answers(warm)).toEqual({ quick: 16, other: 8 });
  choice.taken(warm, 'quick');
  expect(answers(warm)).toEqual({ quick: 11, other: 8 });
  hear('quick');
  expect(answers(warm)).toEqual({ quick: 6, other: 8 });
  // Never called there, it is assumed to take what it takes here.
  reports['other']!.offers[warm] = { ...loaded, ms: undefined, callMs: undefined };
  expect(answers(warm)['other']).toBe(4);
});

test("an answer is predicted by the member's own word, else by what a call takes there or here", () => {
  const at = { name: 'one', backlogMs: 0 } as Member;
  const { choice } = choiceOf({});
  const msOf = (offer: Partial<FunctionOffer>, ownMs?: number): number =>
    choice.candidate(warm, at, { isHeld: true, load: 0, ...offer }, { wayMs: 0, ownMs }).ms;
  const offer = { startMs: 300, callMs: 20, lanes: 4 };
  expect(msOf({ ...offer, ms: 7 }, 99)).toBe(7);
  expect(msOf(offer, 99)).toBe(320);
  expect(msOf({ ...offer, callMs: undefined }, 99)).toBe(399);
  expect(msOf({})).toBe(10);
  expect([shareMs(offer), shareMs({})]).toEqual([5, 10]);
});
