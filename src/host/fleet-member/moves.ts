/** Which functions have new homes, and why: reported as events, stored, and counted by lost host. */
import type { EventLog, HostEvent } from '../history/index.ts';
import type { FleetMember as RankedMember } from '../../schedule/index.ts';

export type Move = Extract<HostEvent, { readonly kind: 'moved' }>;

export interface HomeMovesOptions {
  readonly eventLog: EventLog;
  readonly isLost: (host: string) => boolean;
  readonly now?: () => number;
}

/** Where a lost host's functions went, as far as this host has seen. */
export type Fate = NonNullable<ReturnType<HomeMoves['fateOf']>>;

interface FateKept {
  readonly moved: Map<string, number>;
  readonly held: number;
  readonly alone: readonly string[];
}

const keptMax = 200;
/** Moves reported one by one per minute; a host may be the home of thousands. */
const toldMax = 20;
const fatesMax = 64;
const aloneMax = 1000;

export class HomeMoves {
  readonly #options: HomeMovesOptions;
  readonly #now: () => number;
  readonly #latest: Move[] = [];
  readonly #fates = new Map<string, FateKept>();
  #minute = 0;
  #told = 0;
  #untold = 0;

  constructor(options: HomeMovesOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
  }

  /** The newest first. */
  latest(): readonly Move[] {
    return this.#latest.toReversed();
  }

  /** @param held fields of versions that the host had */
  gone(host: string, held: readonly string[], isElsewhere: (field: string) => boolean): void {
    const alone = held.filter((field) => !isElsewhere(field)).slice(0, aloneMax);
    this.#fates.delete(host);
    this.#fates.set(host, { moved: new Map(), held: held.length, alone });
    for (const oldest of this.#fates.keys()) if (this.#fates.size > fatesMax) this.#fates.delete(oldest);
  }

  /** Undefined: this host was not running when it was lost. */
  fateOf(host: string, isElsewhere: (field: string) => boolean) {
    const fate = this.#fates.get(host);
    if (fate === undefined) return undefined;
    return {
      /** Functions that it was a home of, by their current home. */
      moved: Array.from(fate.moved, ([to, functions]) => ({ to, functions })),
      /** Versions that it had, */
      held: fate.held,
      /** and those among these that no other host had. */
      alone: fate.alone.filter((field) => !isElsewhere(field)),
    };
  }

  /** @param before members at the time of the homes `from`; `now`: those of `to` */
  compare(
    functionName: string,
    [from, to]: readonly [readonly string[], readonly string[]],
    [before, now]: readonly [readonly RankedMember[], readonly RankedMember[]],
  ): void {
    const left = from.filter((host) => !to.includes(host));
    const come = to.filter((host) => !from.includes(host));
    for (let index = 0; index < Math.max(left.length, come.length); index++) {
      const [away, here] = [left[index], come[index]];
      const reason = this.#reasonOf(away, here, before, now);
      this.#moved({ kind: 'moved', atMs: this.#now(), functionName, from: away, to: here, reason });
    }
  }

  /** Reports the number of moves that were too many to be reported one by one. */
  tellRest(): void {
    if (this.#untold === 0) return;
    const message = `${this.#untold} more functions have other homes in the fleet`;
    this.#options.eventLog.add({ kind: 'host', level: 'info', message });
    this.#untold = 0;
  }

  #moved(move: Move): void {
    const { from, to, reason, atMs } = move;
    this.#latest.push(move);
    // Moves caused by varying load must not push out those of a lost host.
    if (this.#latest.length > keptMax) this.#latest.splice(Math.max(0, this.#latest.findIndex(isForLoad)), 1);
    const fate = reason === 'lost' && from !== undefined ? this.#fates.get(from) : undefined;
    if (fate !== undefined && to !== undefined) fate.moved.set(to, (fate.moved.get(to) ?? 0) + 1);
    const minute = Math.floor(atMs / 60_000);
    if (minute !== this.#minute) {
      this.tellRest();
      [this.#minute, this.#told] = [minute, 0];
    }
    if (this.#told === toldMax) this.#untold++;
    else {
      this.#told++;
      this.#options.eventLog.add(move, atMs);
    }
  }

  #reasonOf(
    from: string | undefined,
    to: string | undefined,
    before: readonly RankedMember[],
    now: readonly RankedMember[],
  ): Move['reason'] {
    if (from !== undefined) {
      const still = find(now, from);
      if (still === undefined) return this.#options.isLost(from) ? 'lost' : 'left';
      if (still.isLeaving === true) return 'drained';
    }
    if (to !== undefined && (find(before, to)?.isLeaving ?? true)) return 'joined';
    return 'load';
  }
}

const isForLoad = ({ reason }: Move): boolean => reason === 'load';

const find = (members: readonly RankedMember[], host: string): RankedMember | undefined =>
  members.find(({ id }) => id === host);

/** 'its functions run at b:1 (12) and c:1 (3); what it had is at other hosts too' */
export function fateText(fate: Fate | undefined): string {
  if (fate === undefined) return 'it was lost before the host that was asked came';
  const { moved, held, alone } = fate;
  const homes = moved.toSorted((a, b) => b.functions - a.functions).map(({ to, functions }) => `${to} (${functions})`);
  const now =
    homes.length === 0 ? 'it was the home of no function' : `the functions at home there moved to ${homes.join(', ')}`;
  const names = alone.map((field) => field.split(' ')[0]);
  const content =
    held === 0
      ? 'it had no content'
      : names.length === 0
        ? `other hosts have the content of all ${held} versions that it had`
        : `no other host has the content of ${names.slice(0, 5).join(', ')}` +
          (names.length > 5 ? ` and ${names.length - 5} more` : '') +
          ': bring it back, or publish them again';
  return `${now}; ${content}`;
}
