import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { PoolConfiguration } from '../types.ts';
import { instancesOf } from './configuration.ts';
import { CoreAllocator } from './cores.ts';
import { ListSwaps, type ListMember, type ListSwap } from './list-swaps.ts';

const cores = 6;

interface Member extends ListMember {
  batch: number;
  isBusy: boolean;
  isEnding: boolean;
}

const shown = (of: readonly { threads: number; batch: number }[]): string =>
  of
    .map(({ threads, batch }) => `${threads}x${batch}`)
    .sort()
    .join(' ');

/** A function's lists on a machine of its own, and what is wrong with them. */
class Machine {
  readonly faults: string[] = [];
  readonly allocator = new CoreAllocator(
    Array.from({ length: cores }, (_, id) => ({ id, core: id, socket: 0 })),
    cores,
  );
  readonly lists: ListSwaps<Member> = new ListSwaps<Member>(this.allocator, 'f', {
    make: ({ threads, batch }, lease) => ({ threads, batch, lease, isBusy: false, isEnding: false }),
    leavingRank: ({ isBusy }) => (isBusy ? 0 : 1),
    adopt: (member, { batch }) => (member.batch = batch),
    ends: (member) => {
      this.holds(!member.isEnding, 'an instance ends once');
      member.isEnding = true;
      if (!member.isBusy) this.lists.remove(member);
    },
  });
  swap: ListSwap<Member> | undefined;

  holds(isSo: boolean, what: string): void {
    if (!isSo) this.faults.push(what);
  }

  begin(to: PoolConfiguration): void {
    const { serving, swap } = this.lists;
    const begun = this.lists.begin(to);
    if ('state' in begun) {
      this.holds(swap === undefined || begun.state === 'refused', 'one change at a time');
      if (begun.state === 'done') this.holdsServing(to);
      return;
    }
    this.swap = begun;
    this.holds(this.lists.serving === serving, 'the list serves as before while another starts');
  }

  takeOver(): void {
    const { swap, lists } = this;
    if (swap === undefined) return;
    this.swap = undefined;
    const before = [...lists.serving, ...swap.passive];
    let begun = 0;
    const isDone = lists.takeOver(swap, () => {
      begun++;
      this.holds(!before.some(({ isEnding }) => isEnding), 'none ends before the others serve');
    });
    this.holds(begun === Number(isDone), 'it is told once that it serves');
    if (isDone) this.holdsServing(swap.to);
    else this.holds(swap.passive.every(({ isEnding }) => isEnding), 'those of a change that was given up end'); // prettier-ignore
  }

  giveOne(): void {
    const { lists } = this;
    const before = lists.serving;
    lists.giveOne('room');
    const gone = before.filter((member) => !lists.serving.includes(member));
    this.holds(gone.length === (before.length > 1 ? 1 : 0), 'one of several goes');
    for (const { threads, isBusy } of gone) {
      this.holds(!lists.serving.some((member) => member.threads < threads), 'the smallest goes');
      const couldGo = lists.serving.some((member) => member.threads === threads && !member.isBusy);
      this.holds(!isBusy || !couldGo, 'of those alike, one that has no work goes');
    }
  }

  drop(): void {
    this.lists.drop('unload');
    const { serving, configuration, swap } = this.lists;
    this.holds(serving.length === 0 && configuration === undefined && swap === undefined, 'nothing is left of a list');
  }

  removeAll(): void {
    for (const member of this.lists.leaving) this.lists.remove(member);
  }

  /** What holds at any time. */
  look(): void {
    const { configuration, serving, leaving, all } = this.lists;
    this.holdsServing(configuration ?? { groups: [] });
    this.holds(new Set(all).size === all.length, 'none counts twice');
    this.holds(
      [...leaving].every(({ isEnding, isBusy }) => isEnding && isBusy),
      'those that leave have work',
    );
    this.holds(!serving.some(({ isEnding }) => isEnding), 'those that serve do not end');
    const leased = new Set(all.flatMap((member) => member.lease!.cores));
    this.holds(this.allocator.unleased().length === cores - leased.size, 'each lease belongs to an instance');
    const own = serving.flatMap((member) => member.lease!.cores);
    this.holds(new Set(own).size === own.length, 'instances that serve share no core');
  }

  holdsServing(to: PoolConfiguration): void {
    const { serving } = this.lists;
    this.holds(shown(serving) === shown(instancesOf(to)), `${shown(serving)} serves for ${shown(instancesOf(to))}`);
  }
}

const listOf = (instances: number, threads: number, batch = 4): PoolConfiguration => ({
  groups: [{ instances, threads, batch }],
});

const someList: fc.Arbitrary<PoolConfiguration> = fc
  .array(
    fc.record({
      instances: fc.integer({ min: 1, max: 3 }),
      threads: fc.constantFrom(1, 1, 1, 2),
      batch: fc.constantFrom(1, 4),
    }),
    { minLength: 1, maxLength: 2 },
  )
  .map((groups) => ({ groups }));

const someStep = fc.oneof(
  someList.map((to) => (machine: Machine) => machine.begin(to)),
  fc.constantFrom(
    (machine: Machine) => machine.takeOver(),
    (machine: Machine) => machine.lists.giveUp(machine.swap),
    (machine: Machine) => machine.giveOne(),
    (machine: Machine) => machine.drop(),
    (machine: Machine) => machine.removeAll(),
  ),
  fc.nat().map((at) => ({ lists: { serving } }: Machine) => {
    for (const member of serving.slice(at % (serving.length + 1)).slice(0, 1)) member.isBusy = !member.isBusy;
  }),
);

test('whatever happens during changes, the instances that serve are those of the list, each on cores of its own', () => {
  fc.assert(
    fc.property(fc.array(someStep, { minLength: 30, maxLength: 60 }), (steps) => {
      const machine = new Machine();
      for (const step of steps) {
        step(machine);
        machine.look();
      }
      machine.drop();
      machine.removeAll();
      machine.holds(machine.allocator.unleased().length === cores, 'all cores come back');
      expect(machine.faults).toEqual([]);
    }),
  );
});

test('an instance that is given back during a change that adds to its list ends the change', () => {
  const machine = new Machine();
  machine.begin(listOf(2, 1));
  machine.takeOver();
  machine.begin(listOf(3, 1));
  machine.giveOne();
  machine.takeOver();
  expect(shown(machine.lists.serving)).toBe('1x4');
  expect(machine.faults).toEqual([]);
});
