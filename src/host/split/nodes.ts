import { serfTable } from '../../plan/index.ts';

/** As many as the paper measured (SERF, Figure 2). */
export const nodesMax = 8;

export interface NodesWish {
  readonly rows: number;
  /** What a run of so many rows takes. */
  readonly msOf: (rows: number) => number;
  /** What a part takes beside its run: the way to its place and back. */
  readonly overheadMs: number;
  /** Requests of this kind that arrive. */
  readonly ratePerSecond: number;
  /** Runs that the CPU here and the workers do at the same time. */
  readonly lanes: number;
}

/**
 * How many lanes are to work on one request together: of SERF's configuration table for the load at hand (IV-D) the
 * number with the lowest latency, with each lane as one of its machines. More parts than pay are never taken: under
 * load the lanes are worth more to other requests, and what a part costs in itself is in the table.
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

/** Rows of each part, as even as they can be. */
export function evenParts(rows: number, nodes: number): number[] {
  return Array.from({ length: nodes }, (_, index) => Math.floor((rows + index) / nodes)).reverse();
}
