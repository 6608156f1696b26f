/**
 * Splits a request of many rows over the lanes here and other hosts of the fleet. Each of those hosts gets one part,
 * passed on once like a call. If the host is lost or refuses, the part runs here.
 */
import type { InvokeOptions, PoolInput } from '../../cpu/index.ts';
import type { Member } from '../../fleet/index.ts';
import type { PassedWish, Routing } from '../fleet-member/index.ts';
import type { Ran } from '../placement.ts';
import type { FunctionVersion } from '../types.ts';
import type { RowSplit, RunPart } from './row-split.ts';

export interface RequestOverHosts {
  readonly routing: Pick<Routing, 'run' | 'runPart' | 'roundTripMs'>;
  /** Not empty; the least busy host first. */
  readonly hosts: readonly Member[];
  /** Lanes here. */
  readonly lanes: number;
  readonly version: FunctionVersion;
  readonly input: PoolInput;
  readonly rows: number;
  readonly wish: PassedWish;
  /** Runs a part here. */
  readonly run: RunPart;
}

/** @throws HostError, CpuError */
export async function splitOverHosts(split: RowSplit, request: RequestOverHosts, options: InvokeOptions): Promise<Ran> {
  const { routing, hosts, lanes, version, input, rows, wish, run } = request;
  const runThere: RunPart = async (part, own, lane) => {
    const host = lane === undefined ? undefined : hosts[lane - lanes];
    if (host !== undefined) return (await routing.runPart(host, version, part, wish, own)) ?? (await run(part, own));
    if (lane !== undefined) return await run(part, own);
    return (await routing.run(version, part, wish, own)) ?? (await run(part, own));
  };
  const elsewhere = { lanes: hosts.length, roundTripMs: routing.roundTripMs(hosts) };
  return await split.run(version, input, rows, options, runThere, elsewhere);
}
