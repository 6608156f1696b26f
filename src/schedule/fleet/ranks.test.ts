/** The first members of many functions, while members come and go. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { assignHomes, Ranks, type FleetMember } from '../index.ts';

const membersOf = (capacities: readonly number[]): FleetMember[] =>
  capacities.map((capacity, index) => ({ id: `host-${index}`, capacity }));
/** The home that a function without load is assigned among some of the members, as a host does it. */
const homeOf = (members: readonly FleetMember[], present: readonly number[], name: string): number =>
  present[
    assignHomes(
      present.map((member) => members[member]!),
      [{ name, load: 0 }],
    )[0]![0]!.member
  ]!;
const namesOf = (count: number): string[] => Array.from({ length: count }, (_, index) => `f${index}`);

test('each function has the home among the present members that it is assigned without load, and each move is told', () => {
  const sizes = fc.array(fc.constantFrom(1000, 4000, 8000), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(
      sizes,
      fc.array(fc.array(fc.boolean(), { minLength: 8, maxLength: 8 }), { maxLength: 5 }),
      (capacities, changes) => {
        const members = membersOf(capacities);
        const names = namesOf(20);
        const ranks = new Ranks(members, names);
        for (const [index, name] of names.entries()) {
          expect(ranks.first(index)).toBe(homeOf(members, [...members.keys()], name));
        }
        for (const up of changes) {
          const present = [...members.keys()].filter((member) => up[member]);
          if (present.length === 0) continue;
          const before = names.map((_, index) => ranks.first(index));
          const moved = ranks.setPresent(present);
          for (const [index, name] of names.entries()) {
            const first = homeOf(members, present, name);
            expect(ranks.first(index)).toBe(first);
            expect(moved.get(index)).toBe(before[index] === first ? undefined : before[index]);
          }
        }
      },
    ),
  );
});

test('a member that goes or comes has only its own functions looked at, not every score again', () => {
  const [hosts, functions] = [100, 2000];
  const ranks = new Ranks(membersOf(Array.from({ length: hosts }, () => 1000)), namesOf(functions));
  expect(ranks.scored).toBe(hosts * functions);
  const others = Array.from({ length: hosts - 1 }, (_, index) => index + 1);
  const moved = ranks.setPresent(others);
  expect(ranks.scored - hosts * functions).toBe(moved.size * (hosts - 1));
  expect(moved.size).toBeLessThan(functions / 20);
  const before = ranks.scored;
  expect(ranks.setPresent([0, ...others]).size).toBe(moved.size);
  expect(ranks.scored - before).toBe(functions);
});
