/** Types of the fleet's API for the page. No code. */

/** `GET /v2/fleet` */
export interface FleetAnswer {
  readonly fleet: string;
  readonly redis:
    | { readonly status: 'up' }
    | { readonly status: 'evicting' | 'full' | 'read-only' | 'down'; readonly reason: string };
  readonly hosts: readonly FleetHostAnswer[];
}

export interface FleetHostAnswer {
  readonly name: string;
  readonly id: string;
  readonly url: string;
  /** True for the host that answered. */
  readonly self: boolean;
  readonly state: 'up' | 'draining' | 'sick';
  /** Why it is sick; may be absent. */
  readonly reason?: string;
  readonly version: string;
  readonly started_at: string;
  readonly heard_ms_ago: number;
  /** Null before the first measurement. */
  readonly round_trip_ms: number | null;
  readonly cores: number;
  readonly gpus: number;
  /** Functions whose content it has. */
  readonly functions: number;
  readonly in_flight: number;
  readonly waiting: number;
}

/** `GET /v2/fleet/functions/{name}` */
export interface FleetFunctionAnswer {
  readonly name: string;
  readonly version: string;
  /** Names of hosts, the best first. */
  readonly homes: readonly string[];
  /** The hosts that have its content. */
  readonly holders: readonly { readonly host: string; readonly predicted_ms: number | null }[];
}
