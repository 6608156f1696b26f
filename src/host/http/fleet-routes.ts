/** The fleet over HTTP, for operators. */
import { PeerLost, type Asked, type Fleet, type MemberView } from '../../fleet/index.ts';
import { HostError } from '../errors.ts';
import type { FleetMember } from '../fleet-member/index.ts';
import type { Exchange } from './exchange.ts';
import { changeAsked, versionAsked, type HostContext } from './host-context.ts';

const drainTimeoutMs = 10_000;

export type FleetAnswer = ReturnType<typeof showFleet>;

/** `GET /v2/fleet`: the hosts, and how they stand with this one. Reading it is never a use. */
export function showFleet(context: HostContext) {
  const { fleet } = fleetOf(context);
  const health = context.queueing?.link.health;
  return {
    fleet: fleet.name,
    redis:
      health === undefined || health.status === 'up'
        ? { status: 'up' as const }
        : { status: health.status, reason: health.reason },
    hosts: fleet.view().map(hostView),
  };
}

export type FleetFunctionAnswer = ReturnType<typeof showFleetFunction>;

/** `GET /v2/fleet/functions/{name}`: names of the hosts that are its homes, the best first, and of those that have its content. */
export function showFleetFunction(context: HostContext, exchange: Exchange) {
  const { fleet } = fleetOf(context);
  const version = versionAsked(context, exchange);
  const routing = context.fleet?.routing;
  const own = version.state.status === 'ready' ? [{ host: fleet.membership.name, predicted_ms: null }] : [];
  const others = routing?.holdersOf(version) ?? [];
  return {
    name: version.name,
    version: version.version,
    homes: routing?.homesOf(version.name) ?? [],
    holders: [...own, ...others.map(({ host, offer }) => ({ host, predicted_ms: offer.ms ?? null }))],
  };
}

/** `POST /v2/fleet/hosts/{host}/drain`, at any host, which passes it on: `{"draining": false}` ends the drain. */
export async function drainHost(context: HostContext, exchange: Exchange): Promise<void> {
  const { fleet } = fleetOf(context);
  const name = exchange.pathParam('host');
  const { draining: asked } = await changeAsked(context, exchange, ['draining']);
  const draining = asked ?? true;
  if (typeof draining !== 'boolean') throw new HostError('bad-request', "'draining' is neither true nor false");
  if (name === fleet.membership.name) {
    await fleet.drain(draining);
    exchange.json(200, { host: name, draining: fleet.isDraining });
    return;
  }
  const member = fleet.find(name);
  if (member === undefined) throw unknownHost(fleet, name);
  try {
    const ask: Asked = { ask: 'drain', draining };
    const { header } = await fleet.peers.ask(member, { header: ask, tensors: [] }, { timeoutMs: drainTimeoutMs });
    if ('failure' in header) throw new PeerLost(`host ${name} did not take it`);
    exchange.json(200, { host: name, draining });
  } catch (error) {
    if (error instanceof PeerLost) throw new HostError('fleet-unavailable', error.message, { cause: error });
    throw error;
  }
}

/** @throws HostError 'no-fleet' | 'not-ready' */
function fleetOf({ fleet }: HostContext): FleetMember {
  if (fleet !== undefined) return fleet;
  throw new HostError('no-fleet', 'this host is in no fleet; start it with --redis and --fleet to join one');
}

function unknownHost(fleet: Fleet, name: string): HostError {
  const names = fleet.view().map((each) => each.name);
  const shown = name.slice(0, 80);
  return new HostError('unknown-host', `the fleet '${fleet.name}' has no host '${shown}'; it has ${names.join(', ')}`);
}

export type FleetHostAnswer = ReturnType<typeof hostView>;

const hostView = (host: MemberView) => ({
  name: host.name,
  id: host.id,
  url: host.url ?? '',
  /** True for the host that answered. */
  self: host.isSelf,
  state: host.state,
  /** Why it is sick. */
  reason: host.reason === '' ? undefined : host.reason,
  version: host.hostVersion,
  started_at: new Date(host.startedAtMs).toISOString(),
  heard_ms_ago: Math.round(host.heardMsAgo),
  /** Null before the first measurement. */
  round_trip_ms: host.roundTripMs === undefined ? null : Math.round(host.roundTripMs * 1000) / 1000,
  cores: host.cores,
  gpus: host.gpus,
  /** Functions whose content it has. */
  functions: host.functions,
  in_flight: host.inFlight,
  waiting: host.waiting,
});
