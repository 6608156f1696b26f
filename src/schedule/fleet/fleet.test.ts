/** Homes and the choice among them, for generated fleets. The seed is printed on failure; TURNTABLE_SEED repeats it. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  assignHomes,
  capacityOf,
  chooseHost,
  coreWorth,
  earliest,
  homeLimits,
  type FleetFunction,
  type FleetMember,
} from '../index.ts';

const membersOf = (minLength: number) =>
  fc.uniqueArray(
    fc.record({ id: fc.string({ minLength: 1, maxLength: 8 }), capacity: fc.constantFrom(1000, 4000, 8000) }),
    { minLength, maxLength: 12, selector: ({ id }) => id },
  );
const functionsOf = (minLength: number) =>
  fc.uniqueArray(
    fc.record({ name: fc.string({ minLength: 1, maxLength: 8 }), load: fc.double({ min: 0, max: 3000, noNaN: true }) }),
    { minLength, maxLength: 60, selector: ({ name }) => name },
  );
const members = membersOf(1);
const functions = functionsOf(0);

/** Ids of the homes by function. */
function homesByName(given: readonly FleetMember[], of: readonly FleetFunction[]): Map<string, string[]> {
  const homes = assignHomes(given, of);
  return new Map(of.map(({ name }, index) => [name, homes[index]!.map(({ member }) => given[member]!.id)]));
}

const fleetOf = (count: number): FleetMember[] =>
  Array.from({ length: count }, (_, index) => ({ id: `host-${index}`, capacity: 8000 }));
/** A few functions that are called all the time, and many that are not: shares by Zipf's law. */
const skewed = (count: number, load: number): FleetFunction[] => {
  const sum = Array.from({ length: count }, (_, index) => 1 / (index + 1)).reduce((a, b) => a + b, 0);
  return Array.from({ length: count }, (_, index) => ({ name: `f-${index}`, load: load / (index + 1) / sum }));
};
const changed = (before: Map<string, string[]>, after: Map<string, string[]>): string[] =>
  [...before].filter(([name, homes]) => homes.join() !== after.get(name)!.join()).map(([name]) => name);

const sizes = (gpus: fc.Arbitrary<number>) =>
  fc.array(fc.record({ gpus, cores: fc.integer({ min: 1, max: 64 }) }), { minLength: 1, maxLength: 8 });

describe('the capacity of a member', () => {
  const withGpus = sizes(fc.integer({ min: 1, max: 8 }));
  const without = sizes(fc.constant(0));
  const ms = fc.double({ min: 0.1, max: 1000, noNaN: true });
  const costs = fc.array(fc.record({ gpuMs: ms, coreMs: ms }), { minLength: 1, maxLength: 20 });

  test('counts its GPUs among members with GPUs, and its cores among members without, whatever calls take', () => {
    fc.assert(
      fc.property(fc.oneof(withGpus, without), costs, (given, of) => {
        for (const size of given)
          expect(capacityOf(size, coreWorth(given, of))).toBe(1000 * (size.gpus > 0 ? size.gpus : size.cores));
      }),
    );
  });

  test('without GPUs counts, beside members with GPUs, by how much longer its cores take', () => {
    fc.assert(
      fc.property(withGpus, without, costs, (some, others, of) => {
        const worth = coreWorth([...some, ...others], of);
        expect(coreWorth([...others, ...some].reverse(), [...of].reverse())).toBe(worth);
        const sum = (value: 'gpuMs' | 'coreMs'): number => of.reduce((total, cost) => total + cost[value], 0);
        // In steps of 19%.
        expect(worth).toBeGreaterThanOrEqual((sum('gpuMs') / sum('coreMs')) * (1 - 1e-6));
        expect(worth).toBeLessThanOrEqual((sum('gpuMs') / sum('coreMs')) * 1.2);
        for (const size of others) expect(capacityOf(size, worth)).toBe(1000 * (size.cores * worth));
      }),
    );
  });

  test('without GPUs is none, beside members with GPUs, as long as no function is measured at both', () => {
    fc.assert(
      fc.property(withGpus, without, functions, (some, others, of) => {
        const worth = coreWorth([...some, ...others], [{ gpuMs: 0, coreMs: 5 }]);
        const given = [...others, ...some].map((size, index) => ({
          id: `${index}`,
          capacity: capacityOf(size, worth),
        }));
        for (const homes of assignHomes(given, of))
          for (const { member } of homes) expect(member).toBeGreaterThanOrEqual(others.length);
      }),
    );
  });
});

describe('homes', () => {
  test('every function has at least one home, no two of its homes are one member, and its pieces are its load', () => {
    fc.assert(
      fc.property(members, functions, (given, of) => {
        for (const [index, homes] of assignHomes(given, of).entries()) {
          expect(homes.length).toBeGreaterThan(0);
          expect(new Set(homes.map(({ member }) => member)).size).toBe(homes.length);
          const planned = homes.reduce((sum, { load }) => sum + load, 0);
          // Loads count in steps of 19%.
          expect(planned).toBeGreaterThanOrEqual(of[index]!.load * (1 - 1e-6));
          expect(planned).toBeLessThanOrEqual(of[index]!.load * 1.2);
        }
      }),
    );
  });

  test('no member is planned more than its limit and one piece', () => {
    let bitten = 0;
    fc.assert(
      fc.property(membersOf(3), functionsOf(15), (given, of) => {
        const planned = given.map(() => 0);
        for (const homes of assignHomes(given, of)) for (const { member, load } of homes) planned[member]! += load;
        const limits = homeLimits(given, of);
        for (const [member, limit] of limits.entries()) expect(planned[member]).toBeLessThanOrEqual(1.5 * limit + 1e-6);
        // Otherwise the hash alone would do.
        const alone = given.map(() => 0);
        for (const { name, load } of of) alone[assignHomes(given, [{ name, load: 0 }])[0]![0]!.member]! += load;
        if (alone.some((load, member) => load > limits[member]!)) bitten++;
      }),
      { numRuns: 400 },
    );
    expect(bitten).toBeGreaterThan(30);
  });

  test('the answer does not depend on the order in which a host has learnt of members and functions', () => {
    fc.assert(
      fc.property(
        members,
        functions,
        fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })),
        (given, of, keys) => {
          const shuffled = <Each>(list: readonly Each[]): Each[] =>
            list
              .map((each) => ({ each, key: keys.next().value! }))
              .sort((a, b) => a.key - b.key)
              .map(({ each }) => each);
          expect(homesByName(shuffled(given), shuffled(of))).toEqual(
            new Map([...homesByName(given, of)].map((entry) => entry)),
          );
        },
      ),
    );
  });

  test('a member that leaves a fleet with room moves its own functions and no others, and back when it comes back', () => {
    const fleet = fleetOf(8);
    // A tenth of the capacity: nothing reaches the comfort limit.
    const of = skewed(2000, 6400);
    const before = homesByName(fleet, of);
    const after = homesByName(fleet.slice(1), of);
    const moved = changed(before, after);
    expect(moved.length).toBeGreaterThan(150);
    for (const name of moved) expect(before.get(name)).toContain('host-0');
    expect(changed(before, homesByName(fleet, of))).toEqual([]);
  });

  test('a draining member is home only to functions that no other member can have', () => {
    const fleet = fleetOf(4);
    const of = skewed(300, 3000);
    const drained = homesByName([{ ...fleet[0]!, isLeaving: true }, ...fleet.slice(1)], of);
    expect(drained).toEqual(homesByName(fleet.slice(1), of));
    const all = homesByName(
      fleet.map((member) => ({ ...member, isLeaving: true })),
      of,
    );
    expect(all).toEqual(homesByName(fleet, of));
  });

  test('in a fleet that is nearly full, a member of 16 that leaves moves a sixth of all functions, its own included', () => {
    const fleet = fleetOf(16);
    const of = skewed(5000, 0.8 * 16 * 8000);
    const before = homesByName(fleet, of);
    const moved = changed(before, homesByName(fleet.slice(1), of));
    const own = moved.filter((name) => before.get(name)!.includes('host-0'));
    expect(own.length).toBeGreaterThan(100);
    // What was over a limit comes back as the limits rise, and what comes over one goes on: 764 of 5000.
    expect(moved.length).toBeLessThan(5000 / 6);
  });

  test('a rate that wavers by a few percent moves hardly anything', () => {
    const fleet = fleetOf(16);
    const of = skewed(5000, 0.8 * 16 * 8000);
    const wavered = of.map(({ name, load }, index) => ({ name, load: load * (1 + 0.02 * ((index % 3) - 1)) }));
    const moved = changed(homesByName(fleet, of), homesByName(fleet, wavered));
    expect(moved.length).toBeLessThan(250);
  });

  test('a function has more homes the more load it has, and those it had it keeps', () => {
    const fleet = fleetOf(8);
    let before: string[] = [];
    for (const load of [0, 1000, 4000, 9000, 20_000, 40_000]) {
      const homes = homesByName(fleet, [{ name: 'hot', load }]).get('hot')!;
      expect(homes.length).toBeGreaterThanOrEqual(before.length);
      expect(homes.slice(0, before.length)).toEqual(before);
      before = homes;
    }
    expect(before.length).toBe(8);
  });

  test('a member with twice the capacity is home to about twice as many functions', () => {
    const of = Array.from({ length: 9000 }, (_, index) => ({ name: `f-${index}`, load: 0 }));
    const fleet = [
      { id: 'small', capacity: 8000 },
      { id: 'large', capacity: 16_000 },
    ];
    const large = [...homesByName(fleet, of).values()].filter(([home]) => home === 'large').length;
    expect(large / of.length).toBeGreaterThan(0.64);
    expect(large / of.length).toBeLessThan(0.69);
  });

  test('an invalid fleet or load is refused by name', () => {
    expect(() => assignHomes([], [])).toThrow('a fleet of no members has no homes');
    expect(() => assignHomes([...fleetOf(1), ...fleetOf(1)], [])).toThrow('two members of the fleet have one name');
    expect(() => assignHomes([{ id: 'a', capacity: -1 }], [])).toThrow("the capacity of 'a' is -1");
    expect(() => assignHomes(fleetOf(1), [{ name: 'f', load: NaN }])).toThrow("the load of 'f' is NaN");
  });
});

describe('the choice among hosts', () => {
  const own = { member: 'own', ms: 50 };
  const first = { member: 'first', ms: 21 };
  const second = { member: 'second', ms: 21.2 };
  const call = { own, homes: [first, second], leftMs: 100 };

  test('the first home has it, unless another home answers earlier', () => {
    expect(chooseHost(call)).toEqual({ member: 'first', reason: 'home' });
    expect(chooseHost({ ...call, homes: [second, first] }).member).toBe('second');
    expect(chooseHost({ ...call, homes: [{ ...first, ms: 41 }, second] })).toEqual({
      member: 'second',
      reason: 'other-home',
    });
  });

  test('the round trip counts: of two homes alike, the one that has the call runs it', () => {
    const here = { member: 'own', ms: 20 };
    expect(chooseHost({ ...call, own: here, homes: [first, here] })).toEqual({ member: 'own', reason: 'other-home' });
  });

  test('a host that is no home runs it where every home would be late and it would not, or none is up', () => {
    const late = { ...first, ms: 201 };
    expect(chooseHost({ ...call, homes: [late] })).toEqual({ member: 'own', reason: 'spill' });
    expect(chooseHost({ ...call, homes: [late], leftMs: 40 }).member).toBe('first');
    expect(chooseHost({ ...call, homes: [{ ...first, ms: Infinity }] }).reason).toBe('no-home');
    expect(chooseHost({ ...call, homes: [] })).toEqual({ member: 'own', reason: 'no-home' });
  });
});

describe('the earliest of members', () => {
  const members = ['a', 'b', 'c'].map((member, index) => ({ member, ms: 100 - index }));

  test('is the most preferred of those that count as equal', () => {
    expect(earliest(members)?.member).toBe('c');
    expect(earliest(members, 0.25)?.member).toBe('a');
    expect(earliest([{ member: 'late', ms: 124 }, ...members], 0.25)?.member).toBe('a');
    expect(earliest([{ member: 'near', ms: 122 }, ...members], 0.25)?.member).toBe('near');
  });

  test('counts what a call delays there, and is nobody where no member can run it', () => {
    expect(
      earliest([
        { member: 'starts', ms: 10, costMs: 60 },
        { member: 'busy', ms: 40 },
      ])?.member,
    ).toBe('busy');
    expect(earliest([{ member: 'none', ms: Infinity }])).toBeUndefined();
    expect(earliest([])).toBeUndefined();
  });
});
