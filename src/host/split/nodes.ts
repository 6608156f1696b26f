import { serfTable } from '../../plan/index.ts';

/** As many as the paper measured (SERF, Figure 2). */
export const nodesMax = 8;

export interface NodesWish {
  readonly rows: number;
  /** Milliseconds of a run of so many rows, with no other beside it. */
  readonly msOf: (rows: number) => number;
  /** Milliseconds that a part takes beside its run: the way to its place and back. */
  readonly overheadMs: number;
  /** Arrival rate of such requests. */
  readonly ratePerSecond: number;
  /** Runs that this CPU and the workers can do at the same time. */
  readonly lanes: number;
  /** How many of these are on this CPU, where runs slow each other down. */
  readonly here: number;
  /** How much longer a run takes as one of so many on this CPU. */
  readonly slowdownAt: (running: number) => number;
}

/**
 * How many lanes should work on one request: the number with the lowest latency in SERF's configuration table for the
 * current load (IV-D). Its configurations share the lanes out between requests at once and parts of each, in one table
 * with what runs on this CPU do to each other: under load it leaves the lanes to other requests.
 */
export function nodesFor({ rows, msOf, overheadMs, ratePerSecond, lanes, here, slowdownAt }: NodesWish): number {
  const most = Math.min(lanes, rows, nodesMax);
  if (most < 2) return 1;
  const configurations = Array.from({ length: most }, (_, index) => {
    const nodes = index + 1;
    const concurrency = Math.floor(lanes / nodes);
    const aloneMs = msOf(Math.ceil(rows / nodes));
    const beside = nodes > 1 ? overheadMs : 0;
    const serviceTime = Array.from({ length: concurrency }, (_, before) => {
      const running = Math.max(1, Math.min(here, nodes * (before + 1)));
      return Math.max(aloneMs * slowdownAt(running) + beside, 1e-3);
    });
    return { concurrency, threads: 1, nodes, serviceTime };
  });
  const [level] = serfTable({ unit: 'ms', configurations }, [ratePerSecond]);
  return level?.best?.configuration.nodes ?? 1;
}

/** Rows of each part, as even as possible. */
export function evenParts(rows: number, nodes: number): number[] {
  return Array.from({ length: nodes }, (_, index) => Math.floor((rows + index) / nodes)).reverse();
}
