/** The hosts and levels of the serving benchmark, in rounds: whole ones, or as much as there is time for. */
import { wholeBytes } from '../../src/schedule/index.ts';
import { Budget, inTime, NotInTime } from '../budget.ts';
import type { Patience } from '../gpu-server.ts';
import type { Servers } from '../servers.ts';
import { measureLevel } from './level.ts';
import { startServing, type ServingHost, type Sizes, type System } from './subject.ts';
import type { Cell, Measured } from './tables.ts';

export interface Plan {
  readonly sizes: Sizes;
  /** Functions of which the GPUs should hold all layers. */
  readonly fitting: number;
  readonly systems: readonly System[];
  readonly shares: readonly number[];
  readonly rounds: number;
  /** Another whole round starts only if it will end within this. */
  readonly budgetMs: number;
  readonly sloMs: number;
  /** The tight SLO relative to a warm start. */
  readonly tightFactor: number;
  readonly ratePerS: number;
  readonly warmupRequests: number;
  readonly requests: number;
  readonly environment: Readonly<Record<string, string>>;
}

export interface RoundsOptions {
  readonly seed: number;
  readonly allowsEmulated: boolean;
  readonly progress: (text: string) => void;
}

/** The part that does not depend on the system. */
export interface Frame extends Omit<Measured, 'cells'> {
  readonly gpus: number;
}

export interface Rounds {
  /** Undefined if no host was ready in time. */
  readonly frame: Frame | undefined;
  readonly cells: readonly Cell[];
  readonly rounds: number;
  /** What the time was too short for, in sentences. */
  readonly leftOut: readonly string[];
}

/** With little time, so many of the systems come first, and each gets its part of the time: a comparison needs them. */
const firstSystems = 2;
/** So many of the levels are measured in the first round; the second has the others, and so on. */
const firstShares = 3;
/** Parts of the time that is left, for a host's functions to be planned, and until its last level has ended. */
const planningShare = 0.5;
const firstHostShare = 0.6;

/**
 * Whole rounds, as many as the plan allows; with a budget, levels and hosts in the order of the plan, which has what matters
 * most first, until the time is over.
 */
export async function measureRounds(
  servers: Servers,
  plan: Plan,
  options: RoundsOptions,
  budget: Budget | undefined,
): Promise<Rounds> {
  const { systems, sizes, shares, environment } = plan;
  const { allowsEmulated, progress } = options;
  const limit = budget ?? new Budget(Infinity);
  const rounds = new Budget(plan.budgetMs);
  const cells: Cell[] = [];
  const leftOut: string[] = [];
  let frame: Frame | undefined;
  let round = 0;

  const measureHost = async (system: System, wanted: readonly number[], hostUntilMs: number): Promise<void> => {
    const say = (text: string): void => progress(`round ${round + 1}, ${system.name}: ${text}`);
    const patience: Patience | undefined = budget && {
      fewerFromMs: performance.now() + planningShare * (hostUntilMs - performance.now()),
      // The first level, at which nothing is evicted.
      fewer: Math.ceil(plan.fitting * Math.min(...shares)),
      untilMs: budget.untilMs,
    };
    say('the host starts');
    let host: ServingHost | undefined;
    try {
      const given = { allowsEmulated, progress: say, patience };
      const started = await limit.time('start', () => startServing(servers, system, sizes, environment, given));
      host = started;
      if (host.planned.length < sizes.functions)
        leftOut.push(
          `${sizes.functions - host.planned.length} functions of '${system.name}', which were not planned in time`,
        );
      const known = (frame ??= frameOf(host, plan));
      const levels = new Set(wanted.map((share) => functionsAt(share, known, sizes)));
      let isFirst = true;
      for (const functions of levels) {
        if (functions > host.planned.length) continue;
        // One level at least, or the host was started for nothing.
        if (!isFirst && !limit.fits(['level'], hostUntilMs)) break;
        isFirst = false;
        say(`${functions} functions`);
        const measure = (): Promise<Cell> =>
          measureCell(started, system, functions, known, plan, { round, seed: options.seed + round });
        cells.push(await limit.time('level', () => inTime(measure(), limit.untilMs)));
      }
    } catch (error) {
      if (!(error instanceof NotInTime)) throw error;
      leftOut.push(`the rest of '${system.name}' in round ${round + 1}: ${error.message}`);
    } finally {
      await host?.stop();
    }
  };

  const isOver = (): boolean => !limit.fits(round + cells.length === 0 ? [] : ['start', 'level']);
  for (; round < plan.rounds && !isOver() && (round === 0 || rounds.fits(['round'])); round++) {
    const others = shares.slice(firstShares);
    const part = round % 2 === 0 || others.length === 0 ? shares.slice(0, firstShares) : others;
    await rounds.time('round', async () => {
      for (const turn of systems.keys()) {
        if (isOver()) break;
        const isShared = round === 0 && turn < firstSystems - 1;
        // Each whole round begins with another system, so that changes over time affect all of them.
        if (budget === undefined) await measureHost(systems[(turn + round) % systems.length]!, shares, Infinity);
        else await measureHost(systems[turn]!, part, isShared ? budget.shareMs(firstHostShare) : budget.untilMs);
      }
    });
  }
  return { frame, cells, rounds: round, leftOut };
}

/** The first host's mode loads all layers: its offers say how many functions fit as a whole. */
function frameOf({ snapshot }: ServingHost, { shares, sizes, sloMs, tightFactor }: Plan): Frame {
  const { gpus } = snapshot.scheduler;
  const [any] = snapshot.functions.values();
  const offers = any?.sheet.gpus ?? [];
  const capacity = gpus.reduce((sum, { capacityBytes }, gpu) => {
    const offer = offers[gpu];
    return sum + (offer === null || offer === undefined ? 0 : Math.floor(capacityBytes / wholeBytes(offer)));
  }, 0);
  const levels = new Set(shares.map((share) => functionsAt(share, { capacity }, sizes)));
  return {
    gpus: gpus.length,
    capacity,
    levels: [...levels].toSorted((one, other) => one - other),
    sloMs,
    tightSloMs: Math.round(10 * tightFactor * (offers[0]?.warmMs ?? 0)) / 10,
  };
}

const functionsAt = (share: number, { capacity }: Pick<Frame, 'capacity'>, { functions }: Sizes): number =>
  Math.min(functions, Math.max(1, Math.round(share * capacity)));

async function measureCell(
  host: ServingHost,
  { name }: System,
  functions: number,
  { tightSloMs }: Frame,
  { ratePerS, warmupRequests, requests, sloMs }: Plan,
  { round, seed }: { readonly round: number; readonly seed: number },
): Promise<Cell> {
  const options = { functions, ratePerS, warmupRequests, requests, seed, sloMs, tightSloMs };
  return { ...(await measureLevel(host, options)), system: name, round };
}
