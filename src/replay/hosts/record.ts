/** What the report of a fleet adds to every report. */
import type { Machine } from '../../hardware/index.ts';
import type { FleetRow } from '../../report/index.ts';
import type { HostReason, Given, GpuId } from '../../schedule/index.ts';
import { count } from '../../tools/index.ts';
import type { Outcome, ReplayObserver } from '../types.ts';
import { isInTime, rounded, sortedRecord } from '../tally/tally.ts';
import type { FleetCall } from './host.ts';
import type { FleetSettings } from './types.ts';

/** Length of the span before a failure, and of the one from the failure on. */
const spanS = 60;
/** A failure counts as felt while goodput is lower than before by this. */
const feltShare = 0.01;

export class FleetRecord implements ReplayObserver {
  readonly #observer: ReplayObserver;
  readonly #fleet: FleetSettings;
  readonly #hosts: readonly { readonly machine: Machine }[];
  /** By number of a GPU of the fleet. */
  readonly #hostOfGpu: readonly number[];
  /** Calls that each host has ended. */
  readonly #requestsOfHost: number[];
  readonly #busyMs: number[];
  readonly #reasons = new Map<HostReason, number>();
  /** By second of the arrival. */
  readonly #requests: number[] = [];
  readonly #inSlo: number[] = [];
  readonly #failures: { rerun: number; lost: number }[];
  #total = 0;
  #passed = 0;
  #callBytes = 0;
  #contentBytes = 0;
  moves = 0;

  constructor(observer: ReplayObserver, fleet: FleetSettings, hosts: readonly { readonly machine: Machine }[]) {
    this.#observer = observer;
    this.#fleet = fleet;
    this.#hosts = hosts;
    this.#hostOfGpu = hosts.flatMap(({ machine }, host) => machine.gpus.map(() => host));
    this.#busyMs = hosts.map(() => 0);
    this.#requestsOfHost = hosts.map(() => 0);
    this.#failures = fleet.failures.map(() => ({ rerun: 0, lost: 0 }));
  }

  get measuredFromMs(): number {
    return this.#observer.measuredFromMs ?? 0;
  }

  outcome(outcome: Outcome): void {
    const { arrivalMs } = outcome;
    if (arrivalMs >= this.measuredFromMs) this.#total++;
    const second = Math.floor(arrivalMs / 1000);
    this.#requests[second] = (this.#requests[second] ?? 0) + 1;
    if (isInTime(outcome)) this.#inSlo[second] = (this.#inSlo[second] ?? 0) + 1;
    this.#observer.outcome(outcome);
  }

  eviction: ReplayObserver['eviction'] = (record) => this.#observer.eviction(record);
  planChange: NonNullable<ReplayObserver['planChange']> = (record) => this.#observer.planChange?.(record);
  listChange: NonNullable<ReplayObserver['listChange']> = (record) => this.#observer.listChange?.(record);
  stage: NonNullable<ReplayObserver['stage']> = (record) => this.#observer.stage?.(record);

  busy(gpu: Given<GpuId>, fromMs: number, toMs: number): void {
    const measuredMs = toMs - Math.max(fromMs, this.measuredFromMs);
    if (measuredMs > 0) this.#busyMs[this.#hostOfGpu[gpu]!]! += measuredMs;
    this.#observer.busy(gpu, fromMs, toMs);
  }

  /** A call goes to a host, and content that it misses there. */
  sent({ arrivalMs }: FleetCall, isPassed: boolean, contentBytes: number): void {
    if (arrivalMs < this.measuredFromMs) return;
    if (isPassed) {
      this.#passed++;
      this.#callBytes += this.#fleet.callBytes;
    }
    this.#contentBytes += contentBytes;
  }

  reason({ arrivalMs }: FleetCall, reason: HostReason): void {
    if (arrivalMs >= this.measuredFromMs) count(this.#reasons, reason);
  }

  /** A host has ended a call. */
  endedAt({ arrivalMs }: FleetCall, host: number): void {
    if (arrivalMs >= this.measuredFromMs) this.#requestsOfHost[host]!++;
  }

  rerun(failure: number): void {
    this.#failures[failure]!.rerun++;
  }

  /** The call will never be answered. */
  lost(call: FleetCall, nowMs: number, reason: string, failure?: number): void {
    if (failure !== undefined) this.#failures[failure]!.lost++;
    const { sequence, functionIndex, arrivalMs, sloMs } = call;
    this.outcome({
      sequence,
      functionIndex,
      arrivalMs,
      endMs: nowMs,
      queueMs: nowMs - arrivalMs,
      sloMs,
      placement: { kind: 'failed', reason },
    });
  }

  row(): FleetRow {
    const { router, failures } = this.#fleet;
    const hosts = this.#hosts;
    const busy = this.#busyMs;
    const sumMs = busy.reduce((sum, each) => sum + each, 0);
    const busiestMs = Math.max(...hosts.map(({ machine }, host) => busy[host]! / Math.max(1, machine.gpus.length)));
    const isUnequal = hosts.some(({ machine }) => machine.name !== hosts[0]!.machine.name);
    return {
      hosts: hosts.length,
      router,
      passed: rounded(this.#passed / Math.max(1, this.#total)),
      reasons: sortedRecord(this.#reasons),
      call_bytes: this.#callBytes,
      content_bytes: this.#contentBytes,
      imbalance: sumMs === 0 ? null : rounded(busiestMs / (sumMs / this.#hostOfGpu.length)),
      moves: this.moves,
      per_host: (router === 'one' ? [] : this.#requestsOfHost).map((requests, host) => {
        const { name, gpus } = hosts[host]!.machine;
        const row = { host, requests, busy_s: rounded(busy[host]! / 1000) };
        return isUnequal ? Object.assign(row, { machine: name, gpus: gpus.length }) : row;
      }),
      failures: failures.map(({ host, atMs, backMs }, index) => {
        const { rerun, lost } = this.#failures[index]!;
        const atS = Math.floor(atMs / 1000);
        const before = this.#goodput(Math.max(0, atS - spanS), atS);
        const after = this.#goodput(atS, atS + spanS);
        let feltS = 0;
        for (let second = atS; second < atS + spanS; second++) {
          if (before !== null && (this.#goodput(second, second + 1) ?? 1) < before - feltShare)
            feltS = second + 1 - atS;
        }
        return {
          host,
          at_s: rounded(atMs / 1000),
          back_s: backMs === Infinity ? null : rounded(backMs / 1000),
          goodput_before: before,
          goodput_after: after,
          felt_s: feltS,
          rerun,
          lost,
        };
      }),
    };
  }

  #goodput(fromS: number, toS: number): number | null {
    let requests = 0;
    let inSlo = 0;
    for (let second = fromS; second < toS; second++) {
      requests += this.#requests[second] ?? 0;
      inSlo += this.#inSlo[second] ?? 0;
    }
    return requests === 0 ? null : rounded(inSlo / requests);
  }
}
