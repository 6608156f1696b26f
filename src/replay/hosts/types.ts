/**
 * A fleet in the simulator: so many hosts of one machine type, and the router that decides which of them runs a call.
 */

/**
 * `homes`: as in a real fleet (src/schedule/fleet). `random`: the host that a load balancer happened to choose.
 * `least-loaded`: the host with the fewest calls under way, known to all without delay. `one`: a single scheduler over
 * all GPUs, which no network could give.
 */
export const fleetRouters = ['homes', 'random', 'least-loaded', 'one'] as const;
export type FleetRouter = (typeof fleetRouters)[number];

/** A host that ends without warning, and starts empty if it comes back. */
export interface HostFailure {
  readonly host: number;
  readonly atMs: number;
  /** Infinity: it stays away. */
  readonly backMs: number;
}

export interface FleetSettings {
  readonly hosts: number;
  readonly router: FleetRouter;
  readonly failures: readonly HostFailure[];
  /** From one host to another and back. */
  readonly roundTripMs: number;
  /** Of each host's network, for fetching content. */
  readonly networkGBps: number;
  /** For a passed call, both ways together. */
  readonly callBytes: number;
  /** Of a function's content, which a host must fetch before it can run the function. */
  readonly contentBytes: (functionIndex: number) => number;
  readonly seed: number;
}

/** What a fleet's report adds to every report. */
export interface FleetRow {
  readonly hosts: number;
  readonly router: FleetRouter;
  /** Share of the calls that ran on another host than the one where they arrived. */
  readonly passed: number;
  /** Calls by the reason of the choice; empty for routers other than homes. */
  readonly reasons: Readonly<Record<string, number>>;
  /** Network traffic: calls that were passed on, and content that was fetched. */
  readonly call_bytes: number;
  readonly content_bytes: number;
  /** The busiest host's GPU time over the mean of all hosts; null if no GPU did anything. */
  readonly imbalance: number | null;
  /** Functions whose homes a plan has changed, summed over all plans. */
  readonly moves: number;
  readonly per_host: readonly {
    readonly host: number;
    readonly requests: number;
    readonly busy_s: number;
  }[];
  readonly failures: readonly {
    readonly host: number;
    readonly at_s: number;
    readonly back_s: number | null;
    /** Goodput in the minute before, and in the one that begins with the failure. */
    readonly goodput_before: number | null;
    readonly goodput_after: number | null;
    /**
     * From the failure until the end of the last second within a minute in which goodput was more than 1% below that
     * before.
     */
    readonly felt_s: number;
    /** Calls that it had under way: run elsewhere, and lost. */
    readonly rerun: number;
    readonly lost: number;
  }[];
}
