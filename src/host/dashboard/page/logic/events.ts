/** Recent events for an operator: warnings first, repeated events as one line, routine events by kind. */
import type { EventAnswer } from '../../api-types.ts';

export interface EventGroup {
  /** Stays the same from poll to poll. */
  readonly id: string;
  /** Kind of all events; a cold start beyond the SLO counts as a breach. */
  readonly kind: string;
  readonly latest: EventAnswer;
  readonly count: number;
  /** Time of the oldest one. */
  readonly sinceMs: number;
  readonly functions: number;
  /** The newest first. */
  readonly all: readonly EventAnswer[];
}

/** A cold start beyond the SLO is also a breach, which has an event of its own. */
const kindOf = ({ kind, level }: EventAnswer): string =>
  kind === 'cold-start' && level === 'warning' ? 'slo-breach' : kind;

/** @param events the newest first */
export function foldEvents(events: readonly EventAnswer[]) {
  const worries = events.filter(({ level }) => level === 'warning');
  const routine = events.filter(({ level }) => level === 'info');
  return {
    /** Warnings by function and kind, the latest first. */
    worries: grouped(worries, ({ functionName, text }) => functionName ?? text),
    /** The rest by kind, the latest first. */
    routine: grouped(routine, () => ''),
  };
}

function grouped(events: readonly EventAnswer[], whose: (event: EventAnswer) => string): EventGroup[] {
  const groups = new Map<string, EventAnswer[]>();
  for (const event of events) {
    const id = `${kindOf(event)} ${whose(event)}`;
    const group = groups.get(id);
    if (group === undefined) groups.set(id, [event]);
    else group.push(event);
  }
  return Array.from(groups, ([id, all]) => ({
    id,
    kind: kindOf(all[0]!),
    // Of events at the same moment, the one that gives the cause.
    latest: all.find(({ kind, atMs }) => kind === 'cold-start' && all[0]!.atMs - atMs < 1000) ?? all[0]!,
    count: all.length,
    sinceMs: all.at(-1)!.atMs,
    functions: new Set(all.map(({ functionName }) => functionName)).size,
    all,
  }));
}

const kindNames: Readonly<Record<string, readonly [string, string]>> = {
  'cold-start': ['cold start', 'cold starts'],
  eviction: ['eviction', 'evictions'],
  reconfiguration: ['change of a pool', 'changes of pools'],
  published: ['publication', 'publications'],
  removed: ['removal', 'removals'],
  traffic: ['change of traffic', 'changes of traffic'],
  host: ['notice of the host', 'notices of the host'],
};

/** '31 cold starts of 12 functions' */
export function groupName({ latest, count, functions }: EventGroup): string {
  const [one, many] = kindNames[latest.kind] ?? [latest.kind, latest.kind];
  const of = latest.functionName === null ? '' : ` of ${functions} function${functions === 1 ? '' : 's'}`;
  return `${count} ${count === 1 ? one : many}${of}`;
}

/** The recorded cold start of an event: of the same function, ended within two seconds of it. */
export function recordedOf<Recorded extends { readonly functionName: string; readonly atMs: number }>(
  { kind, functionName, atMs }: EventAnswer,
  recorded: readonly Recorded[],
): Recorded | undefined {
  if (kind !== 'cold-start') return undefined;
  const near = recorded.filter((each) => each.functionName === functionName && Math.abs(each.atMs - atMs) < 2000);
  return near.toSorted((one, other) => Math.abs(one.atMs - atMs) - Math.abs(other.atMs - atMs))[0];
}
