/** What configured instances take of the calls that wait: as recorded, and as a replay decides it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import { Xoshiro } from '../../src/replay/index.ts';
import { tensorOf } from '../../src/tensor/index.ts';
import type { Replica, RunDone, RunOrder, RunOutcome } from '../../src/cpu/instance/index.ts';
import type { PoolConfiguration } from '../../src/cpu/index.ts';
import { instancesOf } from '../../src/cpu/pool/configuration.ts';
import { CoreAllocator, type CoreLease } from '../../src/cpu/pool/cores.ts';
import { HandOver, type HandOverList } from '../../src/cpu/pool/hand-over.ts';
import type { ListOwner } from '../../src/cpu/pool/list-owner.ts';
import type { SwapOwner } from '../../src/cpu/pool/list-swaps.ts';
import { makeSlot, Slots, type Slot } from '../../src/cpu/pool/slot.ts';
import { makeTicket } from '../../src/cpu/pool/ticket.ts';
import { WaitingCalls } from '../../src/cpu/pool/waiting-calls.ts';
import { SimulatedDemand } from '../../src/replay/simulator-demand.ts';
import { SimulatedLists } from '../../src/replay/simulator-lists.ts';
import { LatencyBook, Pace, type BatchCall } from '../../src/schedule/index.ts';

/** A call as it comes: milliseconds after the first, its rows, how long it may wait, and whether it has seen a death. */
interface Arrival {
  readonly atMs: number;
  readonly rows: number;
  readonly deadlineMs: number;
  readonly sawDeath: boolean;
}

interface Sequence {
  readonly configuration: PoolConfiguration;
  readonly batchFixed: number | undefined;
  readonly arrivals: readonly Arrival[];
}

const sequences = Array.from({ length: 60 }, (_, seed) => sequenceOf(seed));

function sequenceOf(seed: number): Sequence {
  const random = new Xoshiro(seed);
  const upTo = (most: number): number => random.below(most);
  const batchFixed = upTo(5) === 0 ? 2 : undefined;
  const groups = Array.from({ length: 1 + upTo(3) }, () => ({
    instances: 1 + upTo(2),
    threads: 1 + upTo(4),
    batch: batchFixed ?? 1 + upTo(8),
    latencyMs: 2 + upTo(40),
  }));
  let atMs = 0;
  const arrivals = Array.from({ length: 80 }, (): Arrival => {
    // Half of them come with the one before.
    atMs += upTo(2) * upTo(12);
    const rows = batchFixed ?? (upTo(3) === 0 ? 1 + upTo(12) : 1);
    return { atMs, rows, deadlineMs: upTo(3) === 0 ? atMs + 1 + upTo(80) : Infinity, sawDeath: upTo(12) === 0 };
  });
  return { configuration: { groups, batchTimeoutMs: [0, 3, 15][upTo(3)]! }, batchFixed, arrivals };
}

/** Which calls, by their numbers, went to which instance, and when: `12 1:3,4` at 12 ms to the second one. */
type Decisions = readonly { readonly atMs: number; readonly what: string }[];

const noSlots = (): Slots => new Slots(new CoreAllocator([], 0), 'f', {} as SwapOwner<Slot>);

const textOf = (decisions: Decisions): string =>
  decisions
    .map(({ atMs, what }) => ({ atMs: Math.round(atMs), what }))
    .toSorted((a, b) => a.atMs - b.atMs || (a.what < b.what ? -1 : 1))
    .map(({ atMs, what }) => `${atMs} ${what}`)
    .join(' ');

/** Instances that take exactly as long as is expected of them, under the pool's own code. */
function decidedLive(
  { configuration, batchFixed, arrivals }: Sequence,
  advance: (toMs: number) => void,
  learns: boolean,
): Decisions {
  const decided: { readonly atMs: number; readonly what: string }[] = [];
  const numbers = new Map<unknown, number>();
  const startMs = performance.now();
  const slots = noSlots();
  const waiting = new WaitingCalls(() => undefined);
  const latency = new LatencyBook();
  // In a replay runs take what the offer says, whatever others took.
  if (!learns) latency.observe = () => undefined;
  for (const [at, planned] of instancesOf(configuration).entries()) {
    latency.expect(planned.threads, planned.batch, planned.latencyMs!);
    const slot = makeSlot(planned, { cores: [1000 + at], [Symbol.dispose]: () => undefined } as unknown as CoreLease);
    slots.add(slot);
    slot.state = 'ready';
    let isFree = true;
    const replica = {
      isAlone: true,
      get state() {
        return isFree ? 'idle' : 'busy';
      },
      get startsAtOnce() {
        return isFree;
      },
      run: ({ calls }: RunOrder, done: RunDone) => {
        isFree = false;
        const taken = calls.map(({ call }) => numbers.get(call)!);
        decided.push({ atMs: performance.now() - startMs, what: `${at}:${taken.join(',')}` });
        const rows = taken.reduce((sum, number) => sum + arrivals[number]!.rows, 0);
        const ms = latency.ms(planned.threads, batchFixed ?? rows);
        setTimeout(() => {
          isFree = true;
          const result = { busyMs: ms, results: [] };
          done({ kind: 'ran', startedMs: 0, result } as unknown as RunOutcome, calls);
        }, ms);
      },
    };
    slot.replica = replica as unknown as Replica;
  }
  const owner = {
    waiting,
    latency,
    limits: { batchMax: 64, batchDelayMs: 0, batchFixed },
    resources: { comparedShare: 0, processes: { ran: () => undefined } },
    conduct: { answered: () => undefined },
    pump: () => handOver.pump(),
    handedOver: () => undefined,
    finished: () => handOver.pump(),
  } as unknown as ListOwner;
  const handOver: HandOver = new HandOver(owner, slots, { configuration, wake: () => undefined } as unknown as HandOverList); // prettier-ignore
  for (const [number, { atMs, rows, deadlineMs, sawDeath }] of arrivals.entries()) {
    advance(startMs + atMs);
    const tensors = [tensorOf('x', 'FP32', [rows, 1], new Float32Array(rows))];
    const ticket = makeTicket(
      { kind: 'tensors', tensors },
      { deadlineMs: startMs + deadlineMs },
      () => undefined,
      () => undefined,
    );
    ticket.alone = sawDeath;
    numbers.set(ticket.call, number);
    waiting.add(ticket);
    // Calls of one instant are there before any goes.
    if (arrivals[number + 1]?.atMs !== atMs) handOver.pump();
  }
  advance(Infinity);
  handOver.stop();
  return decided;
}

const recordedPath = new URL('instance-lists.recorded.json', import.meta.url);
const demandPath = new URL('on-demand.recorded.json', import.meta.url);

const advanceTimers = (toMs: number): void => {
  if (toMs === Infinity) vi.runAllTimers();
  else vi.advanceTimersByTime(toMs - performance.now());
};

test('decisions are as recorded before they had one owner', () => {
  vi.useFakeTimers();
  const found = sequences.map((sequence) => textOf(decidedLive(sequence, advanceTimers, true)));
  vi.useRealTimers();
  if (process.env['TURNTABLE_GOLDEN'] === 'record') writeFileSync(recordedPath, `${JSON.stringify(found, null, 2)}\n`);
  expect(found).toEqual(JSON.parse(readFileSync(recordedPath, 'utf8')));
});

/** The same instances in a replay. */
function decidedInReplay({ configuration, batchFixed, arrivals }: Sequence): Decisions {
  const decided: { readonly atMs: number; readonly what: string }[] = [];
  const wakes: number[] = [];
  let nowMs = 0;
  const lists = new SimulatedLists(
    {
      began: (invocations, _startMs, _endMs, at) =>
        decided.push({ atMs: nowMs, what: `${at}:${invocations.join(',')}` }),
      wake: (atMs) => void wakes.push(atMs),
      grow: () => undefined,
    },
    batchFixed,
  );
  const advance = (toMs: number): void => {
    for (;;) {
      const nextMs = Math.min(...wakes);
      if (nextMs > toMs) return;
      wakes.splice(wakes.indexOf(nextMs), 1);
      nowMs = nextMs;
      lists.decide(0, nowMs);
    }
  };
  for (const [invocation, { atMs, rows, deadlineMs, sawDeath }] of arrivals.entries()) {
    advance(atMs);
    lists.add(0, configuration, { invocation, rows, arrivalMs: atMs, deadlineMs, alone: sawDeath }, atMs);
  }
  advance(Number.MAX_VALUE);
  return decided;
}

// On demand: instances come as calls wait, and each takes the calls of one run at a time.

/** What decides about instances on demand; times of runs by their rows. */
interface DemandSequence {
  readonly batchMax: number;
  readonly batchDelayMs: number;
  readonly instancesMax: number;
  readonly loadMs: number;
  readonly aloneMs: number;
  readonly fullMs: number;
  readonly arrivals: readonly Arrival[];
}

const demandSequences = Array.from({ length: 60 }, (_, seed) => demandSequenceOf(seed));

function demandSequenceOf(seed: number): DemandSequence {
  const random = new Xoshiro(1000 + seed);
  const upTo = (most: number): number => random.below(most);
  const aloneMs = [0.1, 0.4, 1, 6, 30][upTo(5)]! * (1 + upTo(3) / 3);
  const batchMax = 2 + upTo(7);
  const gapMs = aloneMs * [0.1, 0.5, 2][upTo(3)]!;
  let atMs = 0;
  const arrivals = Array.from({ length: 80 }, (): Arrival => {
    atMs += (upTo(2) * upTo(12) * gapMs) / 3;
    // Before the first instance is there no call has its deadline.
    const deadlineMs = upTo(3) === 0 ? atMs + 400 + upTo(80) : Infinity;
    return { atMs, rows: upTo(4) === 0 ? 1 + upTo(3) : 1, deadlineMs, sawDeath: false };
  });
  const fullMs = aloneMs * (1 + upTo(batchMax));
  return { batchMax, batchDelayMs: [0, 1, 15][upTo(3)]!, instancesMax: 1 + upTo(3), loadMs: 1 + upTo(40), aloneMs, fullMs, arrivals }; // prettier-ignore
}

function demandBook({ batchMax, aloneMs, fullMs }: DemandSequence): LatencyBook {
  const book = new LatencyBook();
  book.expect(1, 1, aloneMs);
  book.expect(1, batchMax, fullMs);
  return book;
}

/** One instance in a process of its own, which takes its messages one after the other. */
class OwnProcess {
  readonly isAlone = true;
  isShort = false;
  readonly #messages: { readonly isLong: boolean; readonly ms: number; readonly ended: () => void }[] = [];

  get state(): 'idle' | 'busy' {
    return this.#messages.length > 0 ? 'busy' : 'idle';
  }

  get queued(): number {
    return this.#messages.length;
  }

  takes(): boolean {
    return this.queued === 0 || (this.isShort && this.#messages.every(({ isLong }) => !isLong));
  }

  isHeldUp(): boolean {
    return false;
  }

  send(ms: number, ended: () => void): void {
    this.#messages.push({ isLong: !this.isShort, ms, ended });
    if (this.queued === 1) this.#work();
  }

  #work(): void {
    const { ms, ended } = this.#messages[0]!;
    setTimeout(() => {
      this.#messages.shift();
      if (this.queued > 0) this.#work();
      ended();
    }, ms);
  }
}

function demandDecidedLive(sequence: DemandSequence, advance: (toMs: number) => void): Decisions {
  const { batchMax, batchDelayMs, instancesMax, loadMs, arrivals } = sequence;
  const decided: { readonly atMs: number; readonly what: string }[] = [];
  const numbers = new Map<unknown, number>();
  const startMs = performance.now();
  const slots = noSlots();
  const waiting = new WaitingCalls(() => undefined);
  const book = demandBook(sequence);
  const pace = new Pace();
  let isGrowing = false;
  const grow = (): void => {
    if (isGrowing || slots.ready >= instancesMax) return;
    isGrowing = true;
    const slot = makeSlot({ threads: 1, batch: batchMax }, undefined);
    const at = slots.serving.length;
    slots.add(slot);
    decided.push({ atMs: performance.now() - startMs, what: `${at}:+` });
    const process = new OwnProcess();
    const run = ({ calls }: RunOrder, done: RunDone): void => {
      const taken = calls.map(({ call }) => numbers.get(call)!);
      decided.push({ atMs: performance.now() - startMs, what: `${at}:${taken.join(',')}` });
      const ms = book.ms(
        1,
        taken.reduce((sum, number) => sum + arrivals[number]!.rows, 0),
      );
      const result = { busyMs: ms, results: [] };
      const outcome = { kind: 'ran', startedMs: 0, result } as unknown as RunOutcome;
      process.send(ms, () => done(outcome, calls));
    };
    slot.replica = Object.assign(process, { run }) as unknown as Replica;
    setTimeout(() => {
      isGrowing = false;
      slot.state = 'ready';
      handOver.pump();
    }, loadMs);
  };
  const owner = {
    waiting,
    latency: new LatencyBook(),
    pace,
    spec: {},
    facts: { sessionBytes: () => 1e9, runBytes: () => 0 },
    limits: { batchMax, batchDelayMs, instancesMax },
    resources: { comparedShare: 0, processes: { ran: () => undefined } },
    conduct: { answered: () => undefined, isAlone: () => true },
    pump: () => handOver.pump(),
    handedOver: () => undefined,
    finished: () => handOver.pump(),
  } as unknown as ListOwner;
  const list = { configuration: undefined, wake: () => undefined, grow } as unknown as HandOverList;
  const handOver: HandOver = new HandOver(owner, slots, list);
  for (const [number, { atMs, rows, deadlineMs }] of arrivals.entries()) {
    advance(startMs + atMs);
    const tensors = [tensorOf('x', 'FP32', [rows, 1], new Float32Array(rows))];
    const ticket = makeTicket(
      { kind: 'tensors', tensors },
      { deadlineMs: startMs + deadlineMs },
      () => undefined,
      () => undefined,
    );
    numbers.set(ticket.call, number);
    const idle = waiting.length === 0 ? handOver.takeIdle(rows) : undefined;
    if (idle === undefined) waiting.add(ticket);
    else handOver.run(idle, [ticket]);
    // Calls of one instant are there before any goes.
    if (idle === undefined && arrivals[number + 1]?.atMs !== atMs) handOver.pump();
  }
  advance(Infinity);
  handOver.stop();
  return decided;
}

/** A clock of its own, since timers of Node and Vitest know whole milliseconds alone. */
class Clock {
  nowMs = 0;
  #timers: { readonly atMs: number; readonly fire: () => void }[] = [];

  constructor() {
    vi.spyOn(performance, 'now').mockImplementation(() => this.nowMs);
    vi.stubGlobal('setTimeout', (fire: () => void, ms: number) => {
      const timer = { atMs: this.nowMs + ms, fire };
      this.#timers.push(timer);
      return timer;
    });
    vi.stubGlobal('clearTimeout', (timer: unknown) => {
      this.#timers = this.#timers.filter((each) => each !== timer);
    });
  }

  advance(toMs: number): void {
    for (;;) {
      const [first] = this.#timers.toSorted((one, other) => one.atMs - other.atMs);
      if (first === undefined || first.atMs > toMs) break;
      clearTimeout(first as unknown as NodeJS.Timeout);
      this.nowMs = first.atMs;
      first.fire();
    }
    if (toMs < Infinity) this.nowMs = toMs;
  }
}

test('decisions on demand are as recorded before they had one owner', () => {
  const found = demandSequences.map((sequence) => {
    const clock = new Clock();
    const decided = demandDecidedLive(sequence, (toMs) => clock.advance(toMs));
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
    return textOf(decided.map(({ atMs, what }) => ({ atMs: 1000 * atMs, what })));
  });
  if (process.env['TURNTABLE_GOLDEN'] === 'record') writeFileSync(demandPath, `${JSON.stringify(found, null, 2)}\n`);
  expect(found).toEqual(JSON.parse(readFileSync(demandPath, 'utf8')));
});

/** So fine that a timer's whole milliseconds decide nothing, and no two things happen by chance at one instant. */
const fine = 1e6;

const finely = ({ configuration: { groups, batchTimeoutMs }, batchFixed, arrivals }: Sequence): Sequence => ({
  configuration: {
    groups: groups.map((group, at) => ({ ...group, latencyMs: fine * (group.latencyMs! + Math.SQRT2 * (at + 1)) })),
    batchTimeoutMs: fine * batchTimeoutMs!,
  },
  batchFixed,
  arrivals: arrivals.map((arrival) => {
    const atMs = fine * (arrival.atMs + ((0.618_033_988_75 * arrival.atMs) % 1));
    return { ...arrival, atMs, deadlineMs: Infinity };
  }),
});

test('a replay makes the batches that the pools make', () => {
  for (const sequence of sequences.map(finely)) {
    const clock = new Clock();
    const live = decidedLive(sequence, (toMs) => clock.advance(toMs), false);
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
    // Which of two like instances is first where both are free says nothing.
    const kinds = instancesOf(sequence.configuration).map(({ threads, batch }) => `${threads}x${batch}`);
    const roundly = (decisions: Decisions): string =>
      textOf(
        decisions.map(({ atMs, what }) => {
          const [at = '', calls = ''] = what.split(':');
          return { atMs: atMs / 1000, what: `${kinds[Number(at)]}:${calls}` };
        }),
      );
    expect(roundly(decidedInReplay(sequence))).toBe(roundly(live));
  }
});

/** The same instances on demand in a replay. */
function demandDecidedInReplay(sequence: DemandSequence): Decisions {
  const { loadMs, arrivals } = sequence;
  const decided: { readonly atMs: number; readonly what: string }[] = [];
  const wakes: number[] = [];
  let nowMs = 0;
  const book = demandBook(sequence);
  let started = 0;
  const demand = new SimulatedDemand<BatchCall & { readonly number: number }>(
    { limits: sequence, msOf: (rows) => book.ms(1, rows) },
    {
      began: (calls, _startMs, _endMs, at) =>
        decided.push({ atMs: nowMs, what: `${at}:${calls.map(({ number }) => number).join(',')}` }),
      wake: (atMs) => void wakes.push(atMs),
      grow: () => {
        decided.push({ atMs: nowMs, what: `${started++}:+` });
        return nowMs + loadMs;
      },
    },
  );
  const advance = (toMs: number): void => {
    for (;;) {
      const nextMs = Math.min(...wakes);
      if (nextMs > toMs) return;
      wakes.splice(wakes.indexOf(nextMs), 1);
      nowMs = nextMs;
      demand.decide(nowMs);
    }
  };
  for (const [number, { atMs, rows }] of arrivals.entries()) {
    advance(atMs);
    nowMs = atMs;
    demand.add({ number, rows, arrivalMs: atMs, deadlineMs: Infinity, alone: false }, atMs);
  }
  advance(Number.MAX_VALUE);
  return decided;
}

test('a replay starts the instances on demand that the pools start, and joins the calls that they join', () => {
  for (const sequence of demandSequences) {
    // No two things happen by chance at one instant.
    const arrivals = sequence.arrivals.map((arrival) => ({
      ...arrival,
      atMs: arrival.atMs + ((0.618_033_988_75 * arrival.atMs) % 1) / 16,
      deadlineMs: Infinity,
    }));
    const odd = { ...sequence, arrivals, loadMs: sequence.loadMs + Math.SQRT2 / 8, batchDelayMs: sequence.batchDelayMs && sequence.batchDelayMs + Math.E / 8 }; // prettier-ignore
    const clock = new Clock();
    // A timer's whole milliseconds decide nothing.
    vi.spyOn(Math, 'ceil').mockImplementation((ms) => ms);
    const live = demandDecidedLive(odd, (toMs) => clock.advance(toMs));
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
    const replayed = demandDecidedInReplay(odd);
    // Which of two like instances is first where both are free says nothing.
    const calls = (decisions: Decisions): string[] => decisions.map(({ what }) => what.slice(what.indexOf(':')));
    expect(calls(replayed)).toEqual(calls(live));
    for (const [at, { atMs }] of replayed.entries()) expect(atMs).toBeCloseTo(live[at]!.atMs, 3);
  }
});
