/**
 * A replay over the hosts of a fleet, on one virtual clock. The routing between hosts is the production code in
 * src/schedule/fleet.
 */
import type { FleetRow } from '../../report/index.ts';
import {
  capacityOf,
  chooseHost,
  coreWorth,
  type CallCost,
  type HostReason,
  type MemberAnswer,
  type OfferSheet,
  type Given,
  type FunctionId,
} from '../../schedule/index.ts';
import { getOrMake } from '../../tools/index.ts';
import { deriveSeed, Xoshiro } from '../generate/random.ts';
import { Acts, DueHeap } from '../simulator-heap.ts';
import { simulatorOptions, type SimulationSettings } from '../simulate.ts';
import { gpuFailure, type GpuChange, type SimulatorOptions } from '../simulator-options.ts';
import { runSimulation } from '../simulator.ts';
import type { ReplayObserver, Trace, TraceInvocation } from '../types.ts';
import { FleetRecord } from './record.ts';
import { SimulatedHost, type FleetCall } from './host.ts';
import { FleetPlan, hostCost } from './plan.ts';
import { pooledOptions } from './pooled.ts';
import type { FleetSettings } from './types.ts';

/** From the end of a host until the others notice: a missing heartbeat. */
const detectMs = 1000;

/**
 * Replays a trace over a fleet, and reports to the observer as if it were one machine with all GPUs, those of host 0
 * first. Throws RangeError for a trace that is not in order of arrival, and for a failure of a host that does not
 * exist.
 *
 * @param settings of each host; those of hosts that are alike are one object, so that they share what functions cost
 */
export function simulateFleet(
  trace: Trace,
  settings: readonly SimulationSettings[],
  fleet: FleetSettings,
  observer: ReplayObserver,
): FleetRow {
  const wrong = fleet.failures.find(({ host }) => host >= settings.length);
  if (wrong !== undefined) {
    throw new RangeError(`there is no host ${wrong.host} to fail; there are ${settings.length}, from 0 on`);
  }
  const record = new FleetRecord(observer, fleet, settings);
  const made = new Map<SimulationSettings, SimulatorOptions>();
  const [first, ...others] = settings.map((own) => getOrMake(made, own, () => simulatorOptions(own, record)));
  if (first === undefined) throw new RangeError('a fleet has one host or more');
  const hosts = [first, ...others] as const;
  if (fleet.router === 'one') {
    runSimulation(trace, { ...pooledOptions(hosts), gpuChanges: pooledFailures(fleet, hosts) });
    return record.row();
  }
  const simulation = new FleetSimulation(trace.functionNames, hosts, fleet, record);
  for (const invocation of trace.invocations()) simulation.arrive(invocation);
  simulation.finish();
  return record.row();
}

function pooledFailures({ failures }: FleetSettings, hosts: readonly SimulatorOptions[]): GpuChange[] {
  const first = firstGpus(hosts);
  return failures.flatMap(({ host, atMs, backMs }) =>
    hosts[host]!.gpus.flatMap((_, index) => gpuFailure(first[host]! + index, atMs, backMs)),
  );
}

/** By host, the number of its first GPU in the fleet. */
function firstGpus(hosts: readonly SimulatorOptions[]): number[] {
  let next = 0;
  return hosts.map(({ gpus }) => (next += gpus.length) - gpus.length);
}

const sizeOf = ({ gpus, cpu }: SimulatorOptions) => ({ gpus: gpus.length, cores: cpu?.cores ?? 1 });

/** How many lanes a host has: its GPUs, or its cores if it has none. */
const lanesOf = ({ gpus, cpu }: SimulatorOptions): number => gpus.length || (cpu?.cores ?? 1);

class FleetSimulation {
  readonly #fleet: FleetSettings;
  readonly #record: FleetRecord;
  readonly #names: readonly string[];
  readonly #options: readonly SimulatorOptions[];
  readonly #hosts: readonly SimulatedHost[];
  /** Those of them that are up. */
  #up: readonly SimulatedHost[];
  /** Hosts that are alike share a function's sheet, as they share its offers. */
  readonly #kinds = new Map<SimulatorOptions, { share: number; readonly sheets: (OfferSheet | undefined)[] }>();
  readonly #plan: FleetPlan | undefined;
  /** What a core counts beside GPUs. */
  readonly #coreWorth: number;
  readonly #random: Xoshiro;
  /** What is due besides the trace. */
  readonly #heap = new DueHeap(['act']);
  readonly #acts = new Acts();
  readonly #hopMs: number;
  #nowMs = 0;
  #arrived = 0;

  constructor(
    names: readonly string[],
    options: readonly SimulatorOptions[],
    fleet: FleetSettings,
    record: FleetRecord,
  ) {
    this.#fleet = fleet;
    this.#record = record;
    this.#names = names;
    this.#options = options;
    for (const own of options)
      getOrMake(this.#kinds, own, () => ({ share: 0, sheets: [] })).share += 1 / options.length;
    this.#hopMs = fleet.roundTripMs / 2;
    this.#random = new Xoshiro(deriveSeed(fleet.seed, 0xf1ee7));
    this.#coreWorth = coreWorth(options.map(sizeOf), this.#callCosts());
    const heldBytes = new Float64Array(options.length);
    if (fleet.router === 'homes') {
      const members = options.map((own, index) => ({
        id: `host-${index}`,
        capacity: capacityOf(sizeOf(own), this.#coreWorth),
      }));
      this.#plan = new FleetPlan(names, members, (index) => this.#workMs(index));
      for (const index of names.keys()) heldBytes[this.#plan.homes(index)[0]!]! += fleet.contentBytes(index);
    } else {
      // Any function may come to any host.
      heldBytes.fill(names.reduce((sum, _, index) => sum + fleet.contentBytes(index), 0));
    }
    const first = firstGpus(options);
    this.#hosts = options.map((all, index) => {
      // As on one machine: content that fits into host memory is there when the host has started.
      const host = all.host !== undefined && heldBytes[index]! > all.host.capacityBytes ? all.host : undefined;
      const own = { ...all, host, sheetOf: (each: number) => this.#sheet(each, all) };
      return new SimulatedHost(index, first[index]!, own, (call) => record.endedAt(call, index));
    });
    this.#up = this.#hosts;
    for (const index of names.keys()) this.#publish(index);
    const notice = (): void => this.#plan?.setKnown(this.#up.map(({ index }) => index));
    for (const [failure, { host, atMs, backMs }] of fleet.failures.entries()) {
      this.#at(atMs, () => this.#lose(failure));
      this.#at(atMs + detectMs, notice);
      if (backMs === Infinity) continue;
      this.#at(backMs, () => {
        this.#hosts[host]!.restart(this.#nowMs);
        this.#up = this.#hosts.filter(({ isUp }) => isUp);
      });
      this.#at(backMs + 0.001, notice);
    }
  }

  /** Its content is in the fleet's store, at the host where it was published, and at its home. */
  #publish(functionIndex: Given<FunctionId>): void {
    this.#hosts[this.#random.below(this.#options.length)]!.keepContent(functionIndex);
    for (const host of this.#plan?.homes(functionIndex) ?? []) this.#hosts[host]!.keepContent(functionIndex);
  }

  #sheet(functionIndex: Given<FunctionId>, options: SimulatorOptions): OfferSheet {
    const { sheets } = this.#kinds.get(options)!;
    return (sheets[functionIndex] ??= options.sheetOf(
      functionIndex,
      this.#names[functionIndex] ?? String(functionIndex),
    ));
  }

  /** Calls arrive at any host, and each host tells the load of those by what they take there. */
  #workMs(functionIndex: Given<FunctionId>): number {
    let ms = 0;
    for (const [options, { share }] of this.#kinds) {
      const { warmMs, lanes } = hostCost(this.#sheet(functionIndex, options));
      ms += share * warmMs * lanes * (options.gpus.length > 0 ? 1 : this.#coreWorth);
    }
    return ms;
  }

  /** What a call of each function costs at the hosts with GPUs and at those without. */
  *#callCosts(): Generator<CallCost> {
    const kinds = [...this.#kinds];
    for (const index of this.#names.keys()) {
      const meanMs = (hasGpus: boolean): number => {
        const alike = kinds.filter(([{ gpus }]) => gpus.length > 0 === hasGpus);
        const shares = alike.reduce((sum, [, { share }]) => sum + share, 0);
        return alike.reduce((sum, [options, { share }]) => {
          const { warmMs, lanes } = hostCost(this.#sheet(index, options));
          return sum + (share / shares) * warmMs * lanes;
        }, 0);
      };
      yield { gpuMs: meanMs(true), coreMs: meanMs(false) };
    }
  }

  arrive({ arrivalMs, functionIndex, sloMs }: TraceInvocation): void {
    if (!(arrivalMs >= this.#nowMs)) {
      throw new RangeError(`invocation ${this.#arrived} arrives at ${arrivalMs} ms, before the one in front of it`);
    }
    this.#advance(arrivalMs);
    this.#nowMs = arrivalMs;
    this.#plan?.advance(arrivalMs);
    this.#plan?.count(functionIndex);
    const sequence = this.#arrived++;
    const up = this.#up;
    const call: FleetCall = {
      sequence,
      functionIndex,
      arrivalMs,
      sloMs: sloMs ?? this.#sheet(functionIndex, this.#options[0]!).sloMs,
      hasOwnSlo: sloMs !== undefined,
      // A load balancer sends nothing to a host that does not answer.
      entry: up.length === 0 ? 0 : up[this.#random.below(up.length)]!.index,
      hopMs: 0,
      isRerun: false,
    };
    if (up.length === 0) this.#record.lost(call, arrivalMs, 'no host is up');
    else this.#send(call);
  }

  finish(): void {
    this.#advance(Infinity);
    for (const host of this.#hosts) host.finish();
    this.#record.moves = this.#plan?.moves ?? 0;
  }

  #at(atMs: number, act: () => void): void {
    this.#heap.add(atMs, 'act', this.#acts.add(act));
  }

  #advance(toMs: number): void {
    for (let taken = this.#heap.take(toMs); taken !== undefined; taken = this.#heap.take(toMs)) {
      this.#nowMs = taken.atMs;
      this.#acts.run(taken.number);
    }
  }

  #lose(failure: number): void {
    const { host } = this.#fleet.failures[failure]!;
    const lost = this.#hosts[host]!;
    lost.advance(this.#nowMs);
    const calls = lost.lose();
    this.#up = this.#hosts.filter(({ isUp }) => isUp);
    for (const call of calls) this.#interrupted(call, failure, host);
  }

  /**
   * The host that was to run it is gone. Its entry host runs it elsewhere, once; if the entry is gone, so is the
   * client's connection.
   */
  #interrupted(call: FleetCall, failure: number, host: number): void {
    if (call.entry === host || call.isRerun || !this.#hosts[call.entry]!.isUp) {
      this.#record.lost(call, this.#nowMs, 'the host was lost', failure);
      return;
    }
    this.#record.rerun(failure);
    call.isRerun = true;
    this.#send(call);
  }

  /** Decides where a call at its entry host runs, and sends it there. */
  #send(call: FleetCall): void {
    const host = this.#route(call);
    const isPassed = host !== call.entry;
    call.hopMs = isPassed ? this.#hopMs : 0;
    const target = this.#hosts[host]!;
    const { functionIndex } = call;
    const bytes = this.#fleet.contentBytes(functionIndex);
    let readyMs = target.contentMs(functionIndex, bytes, this.#fleet.networkGBps, this.#nowMs);
    const isMissing = !target.hasContent(functionIndex);
    if (isMissing) target.fetch(functionIndex, readyMs);
    this.#record.sent(call, isPassed, isMissing ? bytes : 0);
    readyMs = Math.max(readyMs, this.#nowMs + call.hopMs);
    if (readyMs <= this.#nowMs) this.#deliver(call, host);
    else this.#at(readyMs, () => this.#deliver(call, host));
  }

  #deliver(call: FleetCall, host: number): void {
    const target = this.#hosts[host]!;
    if (target.isUp) target.give(call, this.#nowMs);
    else {
      const failure = this.#fleet.failures.findIndex((each) => each.host === host && each.atMs <= this.#nowMs);
      this.#interrupted(call, failure, host);
    }
  }

  #route(call: FleetCall): number {
    const { entry } = call;
    switch (this.#fleet.router) {
      case 'least-loaded': {
        let least = entry;
        for (const host of this.#hosts) {
          if (!host.isUp) continue;
          host.advance(this.#nowMs);
          if (host.underWay < this.#hosts[least]!.underWay) least = host.index;
        }
        return least;
      }
      case 'homes':
        return this.#routeHome(call);
      case 'random':
      case 'one':
        return entry;
    }
  }

  #routeHome(call: FleetCall): number {
    const { functionIndex, entry, arrivalMs, sloMs } = call;
    // Until the others notice that a host is lost, its functions may have no home: they run where they arrive.
    const homes = this.#plan!.homes(functionIndex).filter((host) => this.#hosts[host]!.isUp);
    const answer = (host: number): MemberAnswer => ({
      member: String(host),
      ms: this.#predictedEndMs(functionIndex, host) - this.#nowMs + (host === entry ? 0 : this.#fleet.roundTripMs),
    });
    const choice = chooseHost({
      own: answer(entry),
      homes: homes.map(answer),
      leftMs: arrivalMs + sloMs - this.#nowMs,
    });
    this.#record.reason(call, choice.reason satisfies HostReason);
    return Number(choice.member);
  }

  /** From what a host reports to the others: its calls under way, and its resident functions. */
  #predictedEndMs(functionIndex: Given<FunctionId>, index: number): number {
    const host = this.#hosts[index]!;
    host.advance(this.#nowMs);
    const options = this.#options[index]!;
    const { warmMs, coldMs, lanes: lanesOfRun } = hostCost(this.#sheet(functionIndex, options));
    const lanes = Math.max(1, Math.floor(lanesOf(options) / lanesOfRun));
    const waitMs = (Math.max(0, host.underWay - lanes + 1) / lanes) * warmMs;
    const bytes = this.#fleet.contentBytes(functionIndex);
    const contentMs = host.contentMs(functionIndex, bytes, this.#fleet.networkGBps, this.#nowMs);
    return contentMs + waitMs + (host.isResident(functionIndex) ? warmMs : coldMs);
  }
}
