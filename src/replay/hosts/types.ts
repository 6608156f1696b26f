/** A fleet in the simulator: its router, which decides which host runs a call, and the network between the hosts. */
import type { Given, FunctionId } from '../../schedule/index.ts';

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
  readonly router: FleetRouter;
  readonly failures: readonly HostFailure[];
  /** From one host to another and back. */
  readonly roundTripMs: number;
  /** Bandwidth of each host's network, for fetching content. */
  readonly networkGBps: number;
  /** For a passed call, both ways together. */
  readonly callBytes: number;
  /** Bytes of a function's content, which a host must fetch before it can run the function. */
  readonly contentBytes: (functionIndex: Given<FunctionId>) => number;
  readonly seed: number;
}
