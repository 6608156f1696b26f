import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LogicalCore } from '../../hardware/index.ts';
import { CoreAllocator, type CoreLease } from './cores.ts';

/** A machine with this many cores on each socket, each core with so many hardware threads, numbered as Linux does. */
function machine(perSocket: readonly number[], siblings = 1): LogicalCore[] {
  const cores: LogicalCore[] = [];
  for (let sibling = 0; sibling < siblings; sibling++) {
    for (const [socket, count] of perSocket.entries()) {
      for (let core = 0; core < count; core++) cores.push({ id: cores.length, socket, core });
    }
  }
  return cores;
}

function socketsOf(cores: readonly LogicalCore[], lease: CoreLease): number {
  return new Set(lease.cores.map((id) => cores.find((core) => core.id === id)?.socket)).size;
}

const machines = fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 1, maxLength: 4 });

type Step =
  | { readonly kind: 'lease'; readonly owner: string; readonly threads: readonly number[]; readonly beside: boolean }
  | { readonly kind: 'return'; readonly which: number };

const steps = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constant('lease' as const),
      owner: fc.constantFrom('a', 'b', 'c'),
      threads: fc.array(fc.integer({ min: 1, max: 10 }), { minLength: 1, maxLength: 5 }),
      beside: fc.boolean(),
    }),
    fc.record({ kind: fc.constant('return' as const), which: fc.nat(20) }),
  ),
  { maxLength: 30 },
);

/** Takes the steps one after the other, and returns every broken invariant. */
function faultsOf(perSocket: readonly number[], taken: readonly Step[]): string[] {
  const cores = machine(perSocket);
  const allocator = new CoreAllocator(cores, cores.length);
  const faults = new Set<string>();
  const must = (holds: boolean, rule: string): void => {
    if (!holds) faults.add(rule);
  };
  const held: { owner: string; lease: CoreLease }[] = [];
  for (const step of taken) {
    if (step.kind === 'return') {
      const [gone] = held.splice(step.which % Math.max(1, held.length), 1);
      gone?.lease[Symbol.dispose]();
      gone?.lease[Symbol.dispose]();
    } else {
      const { owner, threads, beside } = step;
      const leases = allocator.lease(owner, threads, { beside }) ?? [];
      const together = leases.flatMap((lease) => lease.cores);
      must(new Set(together).size === together.length, 'instances of a set share no core');
      must(beside || leases.every((lease) => lease.exclusive), 'a set that is not beside another has its cores alone');
      for (const [index, lease] of leases.entries()) {
        must(lease.cores.length === threads[index], 'a lease has the cores that were asked for');
        must(
          lease.cores.length > Math.max(...perSocket) || socketsOf(cores, lease) === 1,
          'what fits is on one socket',
        );
        held.push({ owner, lease });
      }
    }
    for (const { id } of cores) {
      const owners = new Set(held.filter(({ lease }) => lease.cores.includes(id)).map(({ owner }) => owner));
      must(owners.size <= 1, 'a core has one owner');
      must(allocator.unleased().includes(id) === (owners.size === 0), 'a core without an owner is unleased');
    }
    for (const owner of ['a', 'b', 'c']) {
      const mine = new Set(held.filter((each) => each.owner === owner).flatMap(({ lease }) => lease.cores));
      const count = (beside: boolean): number =>
        allocator.available(owner, beside).reduce((sum, each) => sum + each, 0);
      must(count(true) - count(false) === mine.size, 'an owner could lease what it holds once more');
    }
  }
  for (const { lease } of held) lease[Symbol.dispose]();
  must(allocator.unleased().length === cores.length, 'everything comes back');
  return [...faults];
}

describe('the core allocator', () => {
  it('never gives a core to two owners, never spreads an instance that fits on a socket, and gets all cores back', () => {
    fc.assert(
      fc.property(machines, steps, (perSocket, taken: readonly Step[]) => {
        expect(faultsOf(perSocket, taken)).toEqual([]);
      }),
    );
  });

  it('finds cores for every list of instances that was cut out of its sockets', () => {
    const cuts = fc.array(fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 4 }), {
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(cuts, (bySocket) => {
        const cores = machine(bySocket.map((cut) => cut.reduce((sum, threads) => sum + threads, 0)));
        const allocator = new CoreAllocator(cores, cores.length);
        const threads = bySocket.flat();
        expect(allocator.lease('f', threads)?.map((lease) => lease.cores.length)).toEqual(threads);
        expect(allocator.unleased()).toEqual([]);
      }),
    );
  });

  it('refuses three threads of which two are free on one socket and one on another', () => {
    const allocator = new CoreAllocator(machine([4, 4]), 8);
    allocator.lease('a', [2]);
    allocator.lease('a', [3]);
    expect(allocator.available('b', false)).toEqual([2, 1]);
    expect(allocator.lease('b', [3])).toBeUndefined();
    expect(allocator.lease('b', [2, 1])).toBeDefined();
  });

  it('spreads only an instance that is larger than any socket', () => {
    const cores = machine([2, 2]);
    const allocator = new CoreAllocator(cores, 4);
    const [lease] = allocator.lease('f', [3]) ?? [];
    expect(lease?.cores).toEqual([0, 1, 2]);
    expect(allocator.lease('f', [2])).toBeUndefined();
  });

  it('gives the second hardware thread of a core out only when every core has work', () => {
    const cores = machine([2, 2], 2);
    const allocator = new CoreAllocator(cores, cores.length);
    const [first, second] = allocator.lease('f', [2, 2, 2, 2]) ?? [];
    expect(first?.cores).toEqual([0, 1]);
    expect(second?.cores).toEqual([4, 5]);
    // Where fewer cores are allowed than there are hardware threads, no two threads share a core.
    const [whole] = new CoreAllocator(machine([4], 2), 4).lease('f', [4]) ?? [];
    expect(whole?.cores).toEqual([0, 1, 2, 3]);
  });

  it('places a set beside another on free cores first, and reports when they share none', () => {
    const allocator = new CoreAllocator(machine([4]), 4);
    const [active] = allocator.lease('f', [2]) ?? [];
    const [passive] = allocator.lease('f', [3], { beside: true }) ?? [];
    expect(passive?.cores).toEqual([2, 3, 0]);
    expect([active?.exclusive, passive?.exclusive]).toEqual([false, false]);
    active?.[Symbol.dispose]();
    expect(passive?.exclusive).toBe(true);
    expect(allocator.lease('other', [2], { beside: true })).toBeUndefined();
  });
});
