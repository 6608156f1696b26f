/** The fleet over HTTP: for those who operate it, and between its hosts. */
import { isFromFleet, PeerLost, type Fleet, type MemberView } from '../../fleet/index.ts';
import { HostError } from '../errors.ts';
import { parseJsonObject } from '../infer/json-body.ts';
import type { StoredFile } from '../store/index.ts';
import type { Exchange } from './exchange.ts';
import { managed, pathParam, type HostContext } from './host-context.ts';

const bodyBytesMax = 4096;
const filesBytesMax = 1024 * 1024;

/**
 * Name of the host of the fleet that sent a request; undefined where a client did.
 *
 * @throws HostError 'forbidden' for one that claims to be a host and is none
 */
export function peerOf(context: HostContext, exchange: Exchange): string | undefined {
  const { authorization } = exchange;
  if (!isFromFleet(authorization)) return undefined;
  if (context.fleet === undefined) throw notInFleet();
  const sender = context.fleet.fleet.senderOf(authorization, { method: exchange.method, path: exchange.url });
  if (typeof sender === 'string') return sender;
  throw new HostError('forbidden', `a request between hosts is refused: ${sender.refused}`);
}

export const notInFleet = (): HostError =>
  new HostError('no-fleet', 'this host is in no fleet; start it with --redis and --fleet to join one');

/** `GET /v2/fleet`: the hosts, and how they stand with this one. Reading it is never a use. */
export function showFleet(context: HostContext, exchange: Exchange): void {
  const { fleet } = fleetOf(context);
  const { health } = fleet.link;
  exchange.json(200, {
    fleet: fleet.name,
    redis: health.status === 'up' ? { status: 'up' } : { status: 'down', reason: health.reason },
    hosts: fleet.view().map(hostView),
  });
}

/** `GET /v2/fleet/ping`: for measuring the way here. */
export function pingFleet(_context: HostContext, exchange: Exchange): void {
  exchange.send(200, [], []);
}

/** `POST /v2/fleet/content`: another host publishes these files, and hears when they are here as well. */
export async function keepContent(context: HostContext, exchange: Exchange): Promise<void> {
  await managed(context, async () => {
    const member = context.fleet;
    if (member === undefined) throw notInFleet();
    const { files } = parseJsonObject(await context.bodies.read(exchange, filesBytesMax), 'the body');
    if (!Array.isArray(files) || !files.every(isStoredFile)) {
      throw new HostError('bad-request', "'files' is not a list of {name, sha256, bytes}");
    }
    await member.keep(files, exchange.peer ?? '');
    exchange.json(200, { kept: files.length });
  });
}

function isStoredFile(file: unknown): file is StoredFile {
  const { name, sha256, bytes } = (file ?? {}) as Partial<Record<keyof StoredFile, unknown>>;
  const isHash = typeof sha256 === 'string' && /^[0-9a-f]{64}$/.test(sha256);
  return typeof name === 'string' && isHash && Number.isSafeInteger(bytes) && Number(bytes) >= 0;
}

/** `POST /v2/fleet/hosts/{host}/drain`: `{"draining": false}` takes it back. Any host passes it on to the one that is named. */
export async function drainHost(context: HostContext, exchange: Exchange): Promise<void> {
  await managed(context, async () => {
    const { fleet } = fleetOf(context);
    const name = pathParam(exchange, 'host');
    const body = await context.bodies.read(exchange, bodyBytesMax);
    const { draining = true } = body.byteLength === 0 ? {} : parseJsonObject(body, 'the body');
    if (typeof draining !== 'boolean') throw new HostError('bad-request', "'draining' is neither true nor false");
    if (name === fleet.membership.name) {
      await fleet.drain(draining);
      exchange.json(200, { host: name, draining: fleet.isDraining });
      return;
    }
    const member = fleet.membership.find(name);
    if (member === undefined) throw unknownHost(fleet, name);
    try {
      const path = `/v2/fleet/hosts/${encodeURIComponent(name)}/drain`;
      const reply = await fleet.peers.send(member, { method: 'POST', path, body: [body], timeoutMs: 10_000 });
      exchange.send(reply.status, ['Content-Type', 'application/json'], [reply.body]);
    } catch (error) {
      if (error instanceof PeerLost) throw new HostError('fleet-unavailable', error.message, { cause: error });
      throw error;
    }
  });
}

/** @throws HostError 'no-fleet' | 'not-ready' */
function fleetOf({ fleet }: HostContext): { readonly fleet: Fleet } {
  if (fleet === undefined) throw notInFleet();
  return fleet;
}

function unknownHost(fleet: Fleet, name: string): HostError {
  const names = fleet.view().map((host) => host.name);
  return new HostError(
    'unknown-host',
    `the fleet '${fleet.name}' has no host '${name.slice(0, 80)}'; it has ${names.join(', ')}`,
  );
}

function hostView(host: MemberView): object {
  return {
    name: host.name,
    id: host.id,
    url: host.url,
    self: host.isSelf,
    state: host.state,
    ...(host.reason === '' ? {} : { reason: host.reason }),
    version: host.hostVersion,
    protocol: host.protocol,
    started_at: new Date(host.startedAtMs).toISOString(),
    heard_ms_ago: Math.round(host.heardMsAgo),
    round_trip_ms: host.roundTripMs === undefined ? null : Math.round(host.roundTripMs * 1000) / 1000,
    cores: host.cores,
    gpus: host.gpus,
    functions: host.functions,
    in_flight: host.inFlight,
    waiting: host.waiting,
  };
}
