/**
 * Decides which host runs a call, by the same router as in the simulator, and sends the call there once. If that host
 * is lost with the call, the call runs here, or at one more host.
 */
import {
  MemberChoice,
  PeerLost,
  triedMax,
  type Fleet,
  type FunctionOffer,
  type Member,
  type OfferChange,
} from '../../fleet/index.ts';
import type { InvokeOptions, PoolInput } from '../../cpu/index.ts';
import {
  chooseHost,
  earliest,
  instancesIn,
  LoadMeter,
  type CallCost,
  type HostReason,
  type MemberAnswer,
} from '../../schedule/index.ts';
import { HostError, isErrorCode } from '../errors.ts';
import type { LiveScheduler } from '../../live/index.ts';
import type { Ran } from '../calls/placement.ts';
import type { DiskModelStore } from '../store/index.ts';
import type { FunctionVersion } from '../types.ts';
import { FleetHomes } from './homes.ts';
import { pass, type PassedFailure, type PassedTerms } from './passing.ts';
import { getOrMake } from '../../tools/index.ts';

/** A function that was not called for this long offers no prediction any more. */
const activeMs = 30_000;
/** A host that refuses with one of these has not run the call: it may run elsewhere. */
const refusals: ReadonlySet<string> = new Set([
  'not-ready',
  'draining',
  'unknown-function',
  'unknown-version',
  'queue-full',
  'too-many-requests',
  'model-load-failed',
  'machine-short',
  'forbidden',
]);

export type RoutedReason = HostReason | 'elsewhere' | 'lost';

export interface RoutingOptions {
  readonly fleet: Fleet;
  readonly store: DiskModelStore;
  readonly live: LiveScheduler;
  /** This host is a home of functions, and so needs their content. */
  readonly onHome: (name: string) => void;
}

export interface PassedCount {
  readonly host: string;
  readonly reason: RoutedReason;
  readonly count: number;
}

interface Demand {
  readonly version: FunctionVersion;
  readonly meter: LoadMeter;
  lastMs: number;
}

interface Choice {
  readonly member: Member;
  readonly reason: RoutedReason;
}

export class Routing {
  readonly #options: RoutingOptions;
  readonly #demand = new Map<string, Demand>();
  readonly #changed = new Set<string>();
  readonly #homes: FleetHomes;
  readonly #others: MemberChoice;
  #demandMs = performance.now();
  readonly #passed = new Map<string, PassedCount>();
  /** Calls that came from other hosts. */
  taken = 0;
  /** Calls whose host was lost, and that ran elsewhere. */
  ranAgain = 0;

  constructor(options: RoutingOptions) {
    this.#options = options;
    const { fleet, store, onHome } = options;
    this.#others = new MemberChoice(fleet.membership);
    this.#homes = new FleetHomes({
      fleet,
      onHome,
      names: () => store.names(),
      loads: (worth) => this.#loads(worth),
      costs: () => this.#costs(),
    });
    store.onChange(({ before, after }) => {
      for (const version of [before, after]) if (version !== undefined) this.#changed.add(fieldOf(version));
      const isNew = after?.state.status === 'elsewhere';
      if (isNew && this.homesOf(after.name)[0] === fleet.membership.name) onHome(after.name);
    });
  }

  /** This host's offers, for its report. */
  *offers(all: boolean): Generator<OfferChange> {
    const { store } = this.#options;
    const nowMs = performance.now();
    this.#countDemand(nowMs);
    const fields = new Set([...this.#changed, ...this.#demand.keys()]);
    if (all) for (const name of store.names()) for (const each of store.versions(name)) fields.add(fieldOf(each));
    for (const [field, { lastMs }] of this.#demand) if (nowMs - lastMs > activeMs) this.#demand.delete(field);
    this.#changed.clear();
    for (const field of fields) yield [field, this.#offerOf(field)];
  }

  /** The hosts have changed, or which of them drain. */
  membersChanged(): void {
    this.#homes.membersChanged();
  }

  /** The homes of a function, the first one best. */
  homesOf(name: string): readonly string[] {
    return this.#homes.of(name);
  }

  /** Whether another host can run a version that is not here. */
  canPass(version: FunctionVersion): boolean {
    return !this.#answers(version, new Set(), 0).next().done;
  }

  /**
   * Runs a call at another host, if that is the one to run it. Resolves to undefined if it must run here.
   *
   * @throws HostError of the other host, if the call failed there
   */
  async run(
    version: FunctionVersion,
    input: PoolInput,
    terms: PassedTerms,
    options: InvokeOptions,
  ): Promise<Ran | undefined> {
    const { fleet, live } = this.#options;
    this.#called(version);
    if (fleet.isAlone) return undefined;
    const isHere = version.state.status === 'ready';
    if (isHere) live.know(version);
    const tried = new Set<string>();
    for (let tries = 0; tries < triedMax; tries++) {
      const choice = this.#choose(version, terms, isHere, tried);
      if (choice === undefined) return undefined;
      const { member, reason } = choice;
      tried.add(member.name);
      try {
        const ran = await this.#pass(member, reason, version, input, terms, options);
        if (ran !== undefined) return ran;
      } catch (error) {
        if (options.signal?.aborted === true) throw new HostError('client-gone', 'the client is gone');
        this.#failed(member, error);
      }
      // It then runs here, or if it cannot, at one more host.
      if (isHere) return undefined;
    }
    return undefined;
  }

  /** A call that was lost with its host runs elsewhere; other errors are rethrown. */
  #failed(member: Member, error: unknown): void {
    if (!(error instanceof PeerLost)) throw error;
    this.ranAgain++;
    this.#options.fleet.peers.failed(member, error.message);
  }

  #choose(
    version: FunctionVersion,
    terms: PassedTerms,
    isHere: boolean,
    tried: ReadonlySet<string>,
  ): Choice | undefined {
    const { fleet, live } = this.#options;
    const self = fleet.membership.name;
    const ownMs = isHere ? live.predictMs(version.key) : Infinity;
    const own = { member: self, ms: ownMs };
    const answers = new Map(this.#answers(version, tried, ownMs < Infinity ? ownMs : 0));
    const homes = this.homesOf(version.name).flatMap((name) => (name === self ? [own] : (answers.get(name) ?? [])));
    const { member: chosen, reason } = chooseHost({ own, homes, leftMs: terms.sloMs ?? version.settings.sloMs });
    if (chosen !== self) return { member: fleet.find(chosen)!, reason };
    if (isHere) return undefined;
    const holder = earliest([...answers.values()]);
    return holder === undefined ? undefined : { member: fleet.find(holder.member)!, reason: 'elsewhere' };
  }

  /** Of the other hosts that answer and have the version's content. @param ownMs what a call takes here */
  *#answers(
    version: FunctionVersion,
    tried: ReadonlySet<string>,
    ownMs: number,
  ): Generator<readonly [string, MemberAnswer]> {
    const { peers } = this.#options.fleet;
    const field = fieldOf(version);
    for (const { member, offer } of this.#others.offering(field, 'host')) {
      const { name } = member;
      if (!offer.isHeld || tried.has(name) || peers.trouble(member) !== undefined) continue;
      yield [name, this.#others.candidate(field, member, offer, { wayMs: peers.roundTripMs(name) ?? 1, ownMs })];
    }
  }

  /** Resolves to undefined if that host refused it. @throws PeerLost, HostError */
  async #pass(
    member: Member,
    reason: RoutedReason,
    version: FunctionVersion,
    input: PoolInput,
    terms: PassedTerms,
    options: InvokeOptions,
  ): Promise<Ran | undefined> {
    const { fleet } = this.#options;
    const { deadlineMs, signal } = options;
    const leftMs = deadlineMs === undefined ? undefined : Math.max(0, deadlineMs - performance.now());
    const { name, version: versionName, modelSha256: model } = version;
    const call = { name, version: versionName, model, terms: { ...terms, leftMs }, input };
    options.stages?.enter('away');
    const field = fieldOf(version);
    this.#others.give(field, member.name);
    const answer = await pass(fleet, member, call, signal).finally(() => this.#others.taken(field, member.name));
    if ('failure' in answer) return refused(member, answer.failure);
    this.#count(member.name, reason);
    const { result, placed, isGpu } = answer;
    const { coldStart } = result;
    return { result, placement: { kind: 'fleet-host', host: member.name, reason, coldStart, isGpu, placed } };
  }

  /** Calls that went to other hosts, by host and reason. */
  passedCounts(): readonly PassedCount[] {
    return [...this.#passed.values()];
  }

  /** Other hosts that have a function's content, and the offer of each. */
  holdersOf(version: FunctionVersion): readonly { readonly host: string; readonly offer: FunctionOffer }[] {
    const offers = [...(this.#options.fleet.membership.offers.of(fieldOf(version)) ?? [])];
    return offers.flatMap(([host, offer]) => (offer.isHeld ? [{ host, offer }] : []));
  }

  #count(host: string, reason: RoutedReason): void {
    const key = `${host} ${reason}`;
    const count = (this.#passed.get(key)?.count ?? 0) + 1;
    this.#passed.set(key, { host, reason, count });
  }

  #called(version: FunctionVersion): void {
    const field = fieldOf(version);
    const demand = getOrMake(this.#demand, field, () => ({ version, meter: new LoadMeter(), lastMs: 0 }));
    demand.meter.calls++;
    demand.lastMs = performance.now();
  }

  #countDemand(nowMs: number): void {
    const seconds = (nowMs - this.#demandMs) / 1000;
    if (seconds < 0.2) return;
    this.#demandMs = nowMs;
    for (const { version, meter } of this.#demand.values()) {
      const { cpu = 1, gpu } = this.#options.live.runMsOf(version.key);
      const ms = Math.min(cpu, gpu);
      meter.look(seconds, ms < Infinity ? ms : 1);
    }
  }

  /** Of the called functions, from the loads that all hosts report. @param worth of a core, in GPUs */
  #loads(worth: number): ReadonlyMap<string, number> {
    const { fleet, live } = this.#options;
    const loads = new Map<string, number>();
    const add = (field: string, load: number, hasGpus: boolean): void => {
      const { name } = partsOf(field);
      if (load > 0) loads.set(name, (loads.get(name) ?? 0) + load * (hasGpus ? 1 : worth));
    };
    for (const [field, { meter }] of this.#demand) add(field, meter.load, live.gpus.length > 0);
    const have = hostsWithGpus(fleet);
    for (const [field, offers] of fleet.membership.offers.fields()) {
      for (const [name, { load }] of offers) add(field, load, have.get(name) ?? true);
    }
    return loads;
  }

  /** Of functions that other hosts have measured: the mean over the hosts with GPUs, and over those without. */
  *#costs(): Generator<CallCost> {
    const { fleet, live, store } = this.#options;
    const have = hostsWithGpus(fleet);
    for (const [field, offers] of fleet.membership.offers.fields()) {
      const [onGpus, onCores]: [number[], number[]] = [[], []];
      for (const [host, { callMs }] of offers) {
        const hasGpus = have.get(host);
        if (hasGpus !== undefined && callMs !== undefined) (hasGpus ? onGpus : onCores).push(callMs);
      }
      if (onGpus.length + onCores.length === 0) continue;
      const { name, versionName } = partsOf(field);
      const version = store.find(name, versionName);
      const ownMs = version === undefined || fieldOf(version) !== field ? Infinity : this.#callMs(version);
      if (ownMs < Infinity) (live.gpus.length > 0 ? onGpus : onCores).push(ownMs);
      if (onGpus.length > 0 && onCores.length > 0) yield { gpuMs: mean(onGpus), coreMs: mean(onCores) };
    }
  }

  /** Measured, of one call alone; Infinity before the first. */
  #callMs({ key }: FunctionVersion): number {
    const { cpu = Infinity, gpu } = this.#options.live.runMsOf(key);
    return Math.min(cpu, gpu);
  }

  #offerOf(field: string): FunctionOffer | null {
    const { store, live } = this.#options;
    const { name, versionName } = partsOf(field);
    const version = store.find(name, versionName);
    const demand = this.#demand.get(field);
    if (version === undefined || fieldOf(version) !== field) return null;
    const isHeld = version.state.status === 'ready';
    if (!isHeld && demand === undefined) return null;
    const { idleMs = Infinity } = live.placeOf(version.key) ?? {};
    const ms = isHeld && idleMs < activeMs ? live.predictMs(version.key) : undefined;
    const { gpu } = live.runMsOf(version.key);
    const callMs = this.#callMs(version);
    return {
      ms: ms === undefined || ms === Infinity ? undefined : rounded(ms),
      isHeld,
      load: Math.round((demand?.meter.load ?? 0) * 10) / 10,
      callMs: callMs < Infinity ? rounded(callMs) : undefined,
      lanes: gpu < Infinity ? live.gpus.length : Math.max(1, instancesIn(live.sheetOf(version.key)?.cpu?.list)),
    };
  }
}

const rounded = (ms: number): number => Math.round(ms * 100) / 100;

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Of the other hosts, whether each has GPUs. */
const hostsWithGpus = (fleet: Fleet): ReadonlyMap<string, boolean> =>
  new Map(fleet.others().map(({ name, gpus }) => [name, gpus > 0]));

/** Version and content: hosts may have different folder functions under one name. */
export const fieldOf = ({ key, modelSha256 }: Pick<FunctionVersion, 'key' | 'modelSha256'>): string =>
  `${key} ${modelSha256.slice(0, 12)}`;

function partsOf(field: string): { name: string; versionName: string } {
  const [, name = '', versionName = ''] = /^(.*)@([^@ ]*) /.exec(field) ?? [];
  return { name, versionName };
}

/** undefined if the call may run elsewhere. @throws HostError of that host, PeerLost */
function refused(member: Member, { code, status, message }: PassedFailure): undefined {
  if (!isErrorCode(code)) throw new PeerLost(`host ${member.name} answered with ${message}`);
  if (refusals.has(code)) return undefined;
  throw new HostError(code, message, { status });
}
