/**
 * Records of functions under random events: the GPU process's behaviour is random, and every invariant is checked after
 * every step.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  evicted,
  gpusOf,
  isOffered,
  isSettled,
  whyNotOnGpu,
  type FunctionEffect,
  type FunctionEvent,
} from './function-state.ts';
import { GpuFunctionTable } from './function-table.ts';

type Work = Extract<FunctionEffect, { readonly attempt: number }>;

/** Carries effects out as gpu-functions.ts does, one step at a time. */
class World {
  readonly table = new GpuFunctionTable();
  readonly offered = new Set<string>();
  readonly poison: ReadonlySet<string>;
  works: Work[] = [];
  nowMs = 0;
  isUp = false;
  preloads: string[] = [];
  discards: string[] = [];
  deaths = 0;

  constructor(poison: readonly string[] = []) {
    this.poison = new Set(poison);
  }

  carryOut(effects: readonly FunctionEffect[]): void {
    for (const effect of effects) {
      if (effect.kind === 'prepare' || effect.kind === 'bring back') this.works.push(effect);
      else if (effect.kind === 'offer') this.offered.add(effect.key);
      else if (effect.kind === 'retract') this.offered.delete(effect.key);
      else if (effect.kind === 'preload') this.preloads.push(effect.key);
      else if (effect.kind === 'discard') this.discards.push(effect.key);
    }
  }

  tell(key: string, event: FunctionEvent): void {
    this.carryOut(this.table.apply(key, event, this.nowMs));
  }

  up(): void {
    if (this.isUp) return;
    this.isUp = true;
    this.carryOut(this.table.processUp([]));
  }

  down(): void {
    if (!this.isUp) return;
    this.isUp = false;
    this.deaths++;
    this.carryOut(this.table.processEnded('it was ended'));
  }

  isStale({ key, attempt }: Work): boolean {
    return this.table.records.get(key)?.attempt !== attempt;
  }

  /** Suspects are worked on alone. */
  begin(most: number): Work[] {
    this.works = this.works.filter((work) => !this.isStale(work));
    const shared = this.works.filter(({ isAlone }) => !isAlone).slice(0, most);
    const begun = shared.length > 0 ? shared : this.works.slice(0, 1);
    for (const { key, attempt } of begun) {
      this.tell(key, { kind: 'stage', attempt, stage: 'registering', isInHand: true });
    }
    return begun;
  }

  /** Does all pending work, a few items at a time; a poisonous function ends the process. */
  work(most: number): void {
    const begun = this.begin(most);
    if (begun.some(({ key }) => this.poison.has(key))) {
      this.down();
      this.up();
      return;
    }
    for (const work of begun) {
      const { key, attempt } = work;
      this.works = this.works.filter((each) => each !== work);
      this.tell(key, work.kind === 'prepare' ? { kind: 'planned', attempt } : { kind: 'brought back', attempt });
    }
  }

  /** Violated invariants, in words. */
  problems(): string[] {
    const found: string[] = [];
    for (const record of this.table.records.values()) {
      const { key: name, state } = record;
      const isOpen = isOffered(record);
      if (this.offered.has(name) !== isOpen) found.push(`the scheduler knows otherwise of ${name}, ${state.kind}`);
      if ((whyNotOnGpu(record, this.nowMs) === undefined) !== isOpen) found.push(`${name} has the wrong reason`);
      if (!this.isUp && isOpen) found.push(`${name} is offered without a process`);
      if (state.kind === 'resident' && gpusOf(record).length === 0) found.push(`${name} is resident nowhere`);
      const isWorked = this.works.some((work) => work.key === name && !this.isStale(work));
      const waits = state.kind === 'absent' || state.kind === 'lost';
      if (this.isUp && waits && !isWorked) found.push(`nobody works for ${name}`);
    }
    const known = new Set([...this.table.records.values()].map((record) => record.key));
    return [...found, ...[...this.offered].filter((name) => !known.has(name))];
  }
}

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

const keys = ['a', 'b', 'c', 'd', 'e'];
const key = fc.constantFrom(...keys);
const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('want' as const), key, flag: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('forget' as const), key, flag: fc.boolean() }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('work' as const), key, flag: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('death' as const), key, flag: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('begin' as const), key, flag: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('run' as const), key, flag: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('pin' as const), key, flag: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('move' as const), key, flag: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('fail' as const), key, flag: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('size' as const), key, flag: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('pass' as const), key, flag: fc.boolean() }) },
);

function take(world: World, { do: what, key: each, flag }: Step): void {
  switch (what) {
    case 'want':
      world.carryOut(world.table.want(each, flag));
      return;
    case 'forget':
      world.carryOut(world.table.forget(each));
      return;
    case 'work':
      if (world.isUp) world.work(flag ? 1 : 4);
      else world.up();
      return;
    case 'death':
      if (flag) world.down();
      else world.up();
      return;
    case 'begin':
      world.begin(flag ? 1 : 4);
      return;
    case 'run':
      world.tell(each, flag ? { kind: 'run failed', reason: 'no' } : { kind: 'run succeeded' });
      return;
    case 'pin':
      world.tell(each, { kind: 'pinned', isPinned: flag });
      return;
    case 'move':
      world.tell(each, flag ? { kind: 'arrived', gpu: 1 } : { kind: 'left', gpu: 1, isWhole: true, cause: 'changed' });
      return;
    case 'fail': {
      const { attempt = 0 } = world.table.records.get(each) ?? {};
      // Overtaken work has no effect any more.
      if (flag) world.tell(each, { kind: 'unfit', attempt: attempt - 1, reason: 'stale' });
      else if (world.works.some((work) => work.key === each && !world.isStale(work)))
        world.tell(each, { kind: 'failed', attempt, cause: 'process', reason: 'died' });
      return;
    }
    case 'size': {
      const work = world.works.find((one) => one.key === each && one.kind === 'prepare' && !world.isStale(one));
      if (!flag) world.tell(each, { kind: 'sized' });
      else if (work !== undefined) {
        world.works = world.works.filter((one) => one !== work);
        world.tell(each, { kind: 'unsized', attempt: work.attempt, inputs: ['sizes'] });
      }
      return;
    }
    case 'pass':
      world.nowMs += 301_000;
      for (const known of keys) world.tell(known, { kind: 'pause over' });
      return;
  }
}

test('under any events the scheduler has exactly the functions that can run, and the others have a reason', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const world = new World();
      for (const each of steps) {
        take(world, each);
        expect(world.problems()).toEqual([]);
      }
      // Without more events it comes to rest.
      world.up();
      for (let round = 0; round < 50; round++) world.work(4);
      expect(world.problems()).toEqual([]);
      expect([...world.table.records.values()].filter((record) => !isSettled(record))).toEqual([]);
    }),
    { numRuns: 300 },
  );
});

test('only functions that crash the GPU process are refused, whichever functions register at the same time', () => {
  fc.assert(
    fc.property(
      fc.subarray(keys),
      fc.shuffledSubarray(keys, { minLength: 5 }),
      fc.integer({ min: 1, max: 4 }),
      (poison, order, most) => {
        const world = new World(poison);
        for (const each of order) world.carryOut(world.table.want(each, false));
        world.up();
        for (let round = 0; round < 100; round++) world.work(most);
        const refused = [...world.table.records.values()]
          .filter(({ state }) => state.kind === 'refused')
          .map((each) => each.key);
        expect(refused.toSorted()).toEqual([...poison].toSorted());
        expect(world.deaths).toBeLessThanOrEqual(4 * poison.length + 1);
      },
    ),
    { numRuns: 200 },
  );
});

function planned(isPinned = false): World {
  const world = new World();
  world.carryOut(world.table.want('a', isPinned));
  world.up();
  world.work(4);
  return world;
}

describe('a function', () => {
  test('whose third run in a row fails is paused, and offered again when the pause is over', () => {
    const world = planned();
    for (let run = 0; run < 3; run++) world.tell('a', { kind: 'run failed', reason: 'too large' });
    expect(world.table.records.get('a')?.state.kind).toBe('paused');
    expect(whyNotOnGpu(world.table.records.get('a')!, 0)).toBe(
      '3 GPU runs failed in a row, the last with: too large; retried in 2 s',
    );
    world.nowMs = 2000;
    world.tell('a', { kind: 'pause over' });
    expect([...world.offered]).toEqual(['a']);
    world.tell('a', { kind: 'run failed', reason: 'too large' });
    expect(whyNotOnGpu(world.table.records.get('a')!, 2000)).toMatch(/retried in 4 s$/);
  });

  test('that hung stays paused after the GPU process has restarted', () => {
    const world = planned();
    world.tell('a', { kind: 'run hung', reason: 'a run did not end' });
    world.down();
    world.up();
    world.work(4);
    expect(world.table.records.get('a')?.state.kind).toBe('paused');
  });

  test('that was refused for lack of room beside a pinned one is tried again when the pin is removed', () => {
    const world = planned(true);
    world.carryOut(world.table.want('b', false));
    const [work] = world.begin(1);
    world.tell('b', { kind: 'failed', attempt: work!.attempt, cause: 'room', reason: 'full' });
    expect(world.table.records.get('b')?.state).toMatchObject({ kind: 'refused', until: 'a pin goes' });
    world.tell('a', { kind: 'pinned', isPinned: false });
    world.work(4);
    expect(world.table.records.get('b')?.state.kind).toBe('planned');
  });

  test('under an estimated plan is served while it waits to be measured, and not while it is measured', () => {
    const world = new World();
    world.carryOut(world.table.want('a', false));
    world.up();
    const [work] = world.begin(1);
    const { attempt } = work!;
    world.tell('a', { kind: 'planned', attempt, estimated: 'a preset' });
    world.tell('a', { kind: 'stage', attempt, stage: 'measuring', isInHand: false });
    expect(world.offered.has('a')).toBe(true);
    world.tell('a', { kind: 'stage', attempt, stage: 'measuring', isInHand: true });
    expect(world.offered.has('a')).toBe(false);
    world.tell('a', { kind: 'stage', attempt, stage: 'checking', isInHand: true });
    expect(whyNotOnGpu(world.table.records.get('a')!, 0)).toMatch(/compared with that of ONNX Runtime/);
    world.tell('a', { kind: 'disagreed', reason: 'y differs by 3' });
    expect(whyNotOnGpu(world.table.records.get('a')!, 0)).toBe(
      'its answer differs from that of ONNX Runtime: y differs by 3',
    );
    expect(world.discards).toEqual(['a']);
  });

  test('whose answer was found to differ while it served is withdrawn, and its work under way is ignored', () => {
    const world = planned();
    const { attempt } = world.table.records.get('a')!;
    world.tell('a', { kind: 'disagreed', reason: 'y differs by 3' });
    expect(world.offered.has('a')).toBe(false);
    world.tell('a', { kind: 'planned', attempt });
    expect(world.table.records.get('a')?.state.kind).toBe('disagreed');
    world.down();
    world.up();
    world.work(4);
    expect(world.table.records.get('a')?.state.kind).toBe('disagreed');
  });

  test("that needs a call's inputs is not offered, and is prepared again after the process has ended", () => {
    const world = new World();
    world.carryOut(world.table.want('a', false));
    world.up();
    const [work] = world.begin(1);
    const { attempt } = work!;
    world.tell('a', { kind: 'undecided', attempt, reason: 'out of bounds' });
    expect(isSettled(world.table.records.get('a')!)).toBe(true);
    expect(world.offered.has('a')).toBe(false);
    world.down();
    world.up();
    expect(world.table.records.get('a')?.state.kind).toBe('absent');
    world.work(4);
    expect(world.table.records.get('a')?.state.kind).toBe('planned');
  });

  test("whose sizes depend on a call's values is prepared for the next call, and for no other reason", () => {
    const world = new World();
    world.carryOut(world.table.want('a', false));
    world.up();
    const [work] = world.begin(1);
    world.tell('a', { kind: 'unsized', attempt: work!.attempt, inputs: ['sizes', 'axes'] });
    world.works = [];
    expect(world.table.records.get('a')).toMatchObject({ isInHand: false, state: { kind: 'unsized' } });
    expect(world.offered.has('a')).toBe(false);
    expect(isSettled(world.table.records.get('a')!)).toBe(true);
    expect(whyNotOnGpu(world.table.records.get('a')!, 0)).toBe(
      "its program is made for the values of 'sizes' and 'axes', and those of a call come first",
    );
    // Events of runs, pauses and GPUs do not concern it; nor does the end of earlier work.
    world.tell('a', { kind: 'unsized', attempt: work!.attempt - 1, inputs: ['others'] });
    world.tell('a', { kind: 'run failed', reason: 'no' });
    world.tell('a', { kind: 'pause over' });
    world.tell('a', { kind: 'arrived', gpu: 0 });
    expect(world.table.records.get('a')?.state).toEqual({ kind: 'unsized', inputs: ['sizes', 'axes'] });
    expect(world.works).toEqual([]);
    world.tell('a', { kind: 'sized' });
    expect(world.works).toMatchObject([{ kind: 'prepare', key: 'a', attempt: work!.attempt + 1, isAlone: false }]);
    // A second call while the first one's values are being worked on starts nothing.
    world.tell('a', { kind: 'sized' });
    expect(world.works).toHaveLength(1);
    world.work(4);
    expect(world.table.records.get('a')?.state.kind).toBe('planned');
  });

  test("whose sizes depend on a call's values needs them again after the process has ended", () => {
    const world = new World();
    world.carryOut(world.table.want('a', false));
    world.up();
    const [work] = world.begin(1);
    world.tell('a', { kind: 'unsized', attempt: work!.attempt, inputs: ['sizes'] });
    world.down();
    expect(world.table.records.get('a')).toMatchObject({ crashes: undefined, state: { kind: 'absent' } });
    world.up();
    expect(world.works.filter((each) => !world.isStale(each))).toMatchObject([{ kind: 'prepare', isAlone: false }]);
  });

  test('tells why its next start on a GPU is cold', () => {
    const world = planned();
    const causeNow = (): string => world.table.records.get('a')!.coldCause;
    expect(causeNow()).toBe('first use');
    world.tell('a', { kind: 'arrived', gpu: 0 });
    world.tell('a', { kind: 'left', gpu: 0, isWhole: true, cause: evicted('room', 'b@1') });
    expect(causeNow()).toBe('evicted: room by b@1');
    world.tell('a', { kind: 'arrived', gpu: 0 });
    world.down();
    expect(causeNow()).toBe('lost with the GPU process');
    world.carryOut(world.table.want('a', false));
    expect(causeNow()).toBe('changed');
  });
});
