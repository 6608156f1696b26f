/** What the host says of its fleet, for the page. Nothing here runs. */

/** `GET /v2/fleet` */
export interface FleetAnswer {
  readonly fleet: string;
  readonly redis: { readonly status: 'up' } | { readonly status: 'down'; readonly reason: string };
  readonly hosts: readonly FleetHostAnswer[];
  /** Functions that have other homes than before, as the host that was asked has seen it; the newest first. */
  readonly moves: readonly FleetMove[];
}

export interface FleetMove {
  readonly at: string;
  readonly function: string;
  /** Null: it has one more home. */
  readonly from: string | null;
  /** Null: it has one home less. */
  readonly to: string | null;
  readonly reason: 'lost' | 'left' | 'drained' | 'joined' | 'load';
  /** All of that in a sentence. */
  readonly text: string;
}

export interface FleetHostAnswer {
  readonly name: string;
  readonly id: string;
  readonly url: string;
  /** It is the host that was asked. */
  readonly self: boolean;
  readonly state: 'up' | 'draining' | 'sick' | 'lost';
  /** Why it is sick, or what became of a lost host's functions; absent where there is nothing to say. */
  readonly reason?: string;
  /** When a lost host's latest report came; its other figures are from that. */
  readonly lost_at?: string;
  readonly version: string;
  readonly protocol: number;
  readonly started_at: string;
  readonly heard_ms_ago: number;
  /** Null before it was measured. */
  readonly round_trip_ms: number | null;
  readonly cores: number;
  readonly gpus: number;
  /** Those whose content it has. */
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
