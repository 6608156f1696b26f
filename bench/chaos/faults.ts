/** Calls during faults: one run, and the result of several. */
import { waitLimitMs } from '../../test/time-limits.ts';
import { tableOf, type BenchmarkOptions, type BenchmarkResult } from '../benchmark.ts';
import { AsyncLoad } from './asynchronous.ts';
import { Ledger, troubles, type Outage, type Stream, type Trouble } from './ledger.ts';
import { SyncLoad } from './load.ts';
import { drawPlan, type FaultKind, type Step } from './plan.ts';
import { Publisher } from './publications.ts';
import { System } from './system.ts';

/** What one run adds to the others; stored as JSON with their result. */
export interface FaultsPiece {
  readonly scene: 'faults';
  readonly seed: number;
  readonly seconds: number;
  readonly workers: number;
  readonly clientsOfEachHost: number;
  readonly faults: number;
  readonly calls: Counts;
  readonly placements: Counts;
  readonly refusals: Counts;
  readonly troubles: Readonly<Record<Trouble, number>>;
  readonly sentAgain: number;
  readonly flushed: number;
  readonly calledBackTwice: number;
  readonly outages: readonly Outage[];
  readonly details: readonly string[];
  /** Faults that the machine did not allow. */
  readonly missing: readonly string[];
}

type Counts = Readonly<Record<string, number>>;

/** A stream without an answer for this long after everything is back counts as lost. */
const recoveryMsMax = waitLimitMs;
/** Each restarts processes; seeds of long runs come to all of them. */
const kindsSmall = 3;

export async function runFaults({ small, seed, minutes = 5, progress }: BenchmarkOptions): Promise<FaultsPiece> {
  const workers = small ? 1 : 2;
  const clients = small ? 3 : 8;
  // A host takes a second to start again. Clients without pauses keep all cores busy for that time.
  const pauseMs = small ? 5 : 0;
  await using system = await System.start(workers);
  const ledger = new Ledger();
  const { kinds, missing } = system.possible();
  const holdMsMax = small ? 400 : 2500;
  const plan = drawPlan({ seed, kinds, holdMsMax, answersMax: small ? 30 : 600 });
  const loads = [
    { run: () => synchronous.run(clients, pauseMs), stop: () => synchronous.stop() },
    ...(system.redis === undefined ? [] : [new AsyncLoad(system, ledger)]),
    new Publisher(system, ledger),
  ];
  const synchronous = new SyncLoad(system, ledger);
  const running = Promise.all(loads.map((load) => load.run()));
  const startMs = performance.now();
  const seen = new Map<FaultKind, number>();
  // Small: so many kinds, however long that takes.
  const isOver = (): boolean =>
    small ? seen.size >= Math.min(kindsSmall, kinds.length) : performance.now() - startMs > minutes * 60_000;
  try {
    if (system.hasGpus)
      await ledger.until('a GPU answers', () => (ledger.placements.get('gpu') ?? 0) > 0, recoveryMsMax);
    while (!isOver()) {
      const step = plan.next().value;
      for (const { kind } of step.faults) seen.set(kind, (seen.get(kind) ?? 0) + 1);
      progress(`${ledger.answered} answers, now: ${nameOf(step)}`);
      await provoke(step, system, ledger);
    }
  } catch (error) {
    ledger.trouble('hung', error instanceof Error ? error.message : String(error));
  } finally {
    for (const load of loads) load.stop();
    await running;
  }
  return {
    scene: 'faults',
    seed,
    seconds: (performance.now() - startMs) / 1000,
    workers,
    clientsOfEachHost: clients,
    faults: [...seen.values()].reduce((sum, times) => sum + times, 0),
    calls: Object.fromEntries(ledger.calls),
    placements: Object.fromEntries(ledger.placements),
    refusals: Object.fromEntries(ledger.refusals),
    troubles: ledger.counts,
    sentAgain: ledger.retries,
    flushed: ledger.flushed,
    calledBackTwice: ledger.calledBackTwice,
    outages: [...ledger.outages.values()],
    details: ledger.details,
    missing,
  };
}

const nameOf = ({ faults }: Step): string => faults.map(({ kind }) => kind).join(' + ');

async function provoke(step: Step, system: System, ledger: Ledger): Promise<void> {
  const from = ledger.answered;
  await ledger.until('calls are answered', () => ledger.answered >= from + step.answersBefore, recoveryMsMax);
  ledger.openWindow(step.faults.length > 1 ? 'two of these at once' : nameOf(step));
  await Promise.all(step.faults.map((fault) => system.inject(fault)));
  // A call is tried twice, so calls that met this fault must be answered before the next one.
  const streams: readonly Stream[] = system.hosts.map((host) => (host === 'host' ? 'cpu' : 'gpu'));
  const before = new Map(streams.map((stream) => [stream, ledger.goodOf(stream)]));
  const more = ledger.pending + 1;
  const isBack = (): boolean => streams.every((stream) => ledger.goodOf(stream) >= before.get(stream)! + more);
  try {
    await ledger.until(`every host answers again after ${nameOf(step)}`, isBack, recoveryMsMax);
  } finally {
    ledger.closeWindow();
  }
}

/** Counts by name, summed over all pieces. */
function added(counts: readonly Counts[]): Counts {
  const sums: Record<string, number> = {};
  for (const each of counts) for (const [name, count] of Object.entries(each)) sums[name] = (sums[name] ?? 0) + count;
  return sums;
}

const rowsOf = (counts: Counts, what: string): string[][] =>
  Object.entries(counts)
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([name, count]) => [`${what}${name}`, String(count)]);

/** For each fault, its number and its longest outage in any piece. */
function longest(outages: readonly Outage[]): Outage[] {
  const byFault = new Map<string, Outage>();
  for (const outage of outages) {
    const known = byFault.get(outage.fault) ?? { ...outage, times: 0 };
    const worse = outage.longestMs > known.longestMs ? outage : known;
    byFault.set(outage.fault, { ...worse, times: known.times + outage.times });
  }
  return [...byFault.values()].toSorted((a, b) => b.longestMs - a.longestMs);
}

/** The result of these runs together. @param pieces at least one */
export function reportFaults(pieces: readonly FaultsPiece[]): BenchmarkResult {
  const total = (numberOf: (piece: FaultsPiece) => number): number =>
    pieces.reduce((sum, piece) => sum + numberOf(piece), 0);
  const calls = added(pieces.map((piece) => piece.calls));
  const answered = Object.values(calls).reduce((sum, count) => sum + count, 0);
  const wrongs = added(pieces.map((piece) => piece.troubles));
  const [faults, seconds] = [total((piece) => piece.faults), total((piece) => piece.seconds)];
  const details = pieces.flatMap(({ seed, details: own }) => own.map((detail) => [String(seed), detail]));
  const { workers, clientsOfEachHost } = pieces.at(-1)!;
  return {
    settings: {
      runs: pieces.length,
      seeds: pieces.map(({ seed }) => seed).join(' '),
      workers,
      clientsOfEachHost,
      faults,
      seconds: Math.round(seconds),
    },
    tables: [
      {
        title: 'calls beside the faults',
        provenance: { kind: 'measured' },
        columns: ['WHAT', '>COUNT'],
        rows: [
          ['answered rightly', String(answered)],
          ...rowsOf(calls, 'of these '),
          ...rowsOf(added(pieces.map((piece) => piece.placements)), 'run by '),
          ...troubles.map((kind) => [kind, String(wrongs[kind] ?? 0)]),
          ['sent again', String(total((piece) => piece.sentAgain))],
          ...rowsOf(added(pieces.map((piece) => piece.refusals)), 'told to come again: '),
          ['accepted and forgotten with FLUSHALL', String(total((piece) => piece.flushed))],
          ['called back twice', String(total((piece) => piece.calledBackTwice))],
        ],
      },
      tableOf('longest time without an answer', longest(pieces.flatMap(({ outages }) => outages)), [
        ['FAULT', ({ fault }) => fault],
        ['>TIMES', ({ times }) => String(times)],
        ['>LONGEST MS', ({ longestMs }) => longestMs.toFixed(0)],
        ['CALLS', ({ stream }) => stream],
      ]),
      ...(details.length === 0
        ? []
        : [
            {
              title: 'what went wrong',
              provenance: { kind: 'measured' as const },
              columns: ['>SEED', 'WHAT'],
              rows: details,
            },
          ]),
    ],
    figures: { calls: answered, faults, callsPerSecond: answered / seconds, ...wrongs },
    aims: troubles.map((kind) => ({
      aim: `no call is ${kind}`,
      met: wrongs[kind] === 0,
      reached: `${wrongs[kind]} of ${answered}, beside ${faults} faults`,
    })),
    limits: [
      'faults of a network between machines: everything runs on one',
      ...[...new Set(pieces.flatMap(({ missing }) => missing))].map(
        (reason) => `faults that this machine did not allow: ${reason}`,
      ),
    ],
  };
}
