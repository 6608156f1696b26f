import { serfTable } from '../../plan/index.ts';

/** As many as the paper measured (SERF, Figure 2). */
export const nodesMax = 8;

export interface NodesWish {
  readonly rows: number;
  /** Milliseconds of a run of so many rows. */
  readonly msOf: (rows: number) => number;
  /** Milliseconds that a part takes beside its run: the way to its place and back. */
  readonly overheadMs: number;
  /** Arrival rate of such requests. */
  readonly ratePerSecond: number;
  /** Runs that this CPU and the workers can do at the same time. */
  readonly lanes: number;
}

/**
 * How many lanes should work on one request: the number with the lowest latency in SERF's configuration table for the
 * current load (IV-D), with each lane as a machine. The table includes the cost of a part, and under load it leaves the
 * lanes to other requests.
 */
export function nodesFor({ rows, msOf, overheadMs, ratePerSecond, lanes }: NodesWish): number {
  const most = Math.min(lanes, rows, nodesMax);
  if (most < 2) return 1;
  const configurations = Array.from({ length: most }, (_, index) => {
    const nodes = index + 1;
    const ms = msOf(Math.ceil(rows / nodes)) + (nodes > 1 ? overheadMs : 0);
    return { concurrency: 1, threads: 1, nodes, serviceTime: [Math.max(ms, 1e-3)] };
  });
  const [level] = serfTable({ unit: 'ms', configurations }, [ratePerSecond], { machines: lanes });
  return level?.best?.configuration.nodes ?? 1;
}

/** Rows of each part, as even as possible. */
export function evenParts(rows: number, nodes: number): number[] {
  return Array.from({ length: nodes }, (_, index) => Math.floor((rows + index) / nodes)).reverse();
}
