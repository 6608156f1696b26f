/** A fleet in the simulator: so many hosts of one machine, and who decides which of them runs a call. */

/**
 * `homes`: as a fleet that serves does it (src/schedule/fleet). `random`: the host that a load balancer happened to
 * choose. `least-loaded`: the host with the fewest calls under way, known to all without delay. `one`: no hosts, but
 * one scheduler over all GPUs, which no network could give.
 */
export const fleetRouters = ['homes', 'random', 'least-loaded', 'one'] as const;
export type FleetRouter = (typeof fleetRouters)[number];

/** A host that ends without a word, and starts empty where it comes back. */
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
  /** Of each host's network, for what it fetches. */
  readonly networkGBps: number;
  /** Of a passed call, there and back together. */
  readonly callBytes: number;
  /** Of a function's content, which a host without it fetches before it can run it. */
  readonly contentBytes: (functionIndex: number) => number;
  readonly seed: number;
}

/** What a fleet's report has beside what every report has. */
export interface FleetRow {
  readonly hosts: number;
  readonly router: FleetRouter;
  /** Share of the calls that ran on another host than the one they came to. */
  readonly passed: number;
  /** Calls by the reason of the choice; empty for other routers than homes. */
  readonly reasons: Readonly<Record<string, number>>;
  /** Over the network: calls that were passed on, and content that was fetched. */
  readonly call_bytes: number;
  readonly content_bytes: number;
  /** The busiest host's time on its GPUs over the mean of all hosts; null where no GPU did anything. */
  readonly imbalance: number | null;
  /** Functions whose homes are others after a plan than before it, over all plans. */
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
