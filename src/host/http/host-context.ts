/** Shared by all routes. */
import type { Logger } from 'pino';
import type { CpuPools } from '../../cpu/index.ts';
import type { Access } from '../access/access.ts';
import type { Connections } from '../limits/connections.ts';
import type { HostConfig } from '../config/config.ts';
import type { ViewSources } from '../dashboard/index.ts';
import { HostError } from '../errors.ts';
import type { FleetMember } from '../fleet-member/index.ts';
import type { FunctionLog } from '../records/function-log.ts';
import type { SchedulerView } from '../gpu/index.ts';
import { parseJsonChange, parseJsonObject } from '../infer/json-body.ts';
import { shown } from '../infer/model-spec.ts';
import type { Invoker } from '../calls/invoke.ts';
import type { Logging } from '../records/logger.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Rollout } from '../rollout/rollout.ts';
import type { Queueing } from '../queueing/index.ts';
import type { InFlightBytes } from '../limits/in-flight.ts';
import type { Statistics } from '../records/statistics.ts';
import type { FunctionVersion, ModelStore } from '../types.ts';
import type { Bodies } from './body.ts';
import type { EventStreams, LogStreams } from './event-streams.ts';
import type { Exchange, ExchangeMeans } from './exchange.ts';
import type { Lifecycle } from './lifecycle.ts';

export interface HostContext {
  readonly config: HostConfig;
  readonly access: Access;
  readonly store: ModelStore;
  readonly invoker: Invoker;
  readonly rollout: Rollout;
  readonly pools: CpuPools;
  readonly metrics: Metrics;
  readonly statistics: Statistics;
  readonly logger: Logger;
  readonly lifecycle: Lifecycle;
  /** Of this program. */
  readonly hostVersion: string;
  readonly bodies: Bodies;
  readonly exchangeMeans: ExchangeMeans;
  /** Shared with gRPC, like the next. */
  readonly inFlight: InFlightBytes;
  readonly connections: Connections;
  /** The data of the dashboard's API. */
  readonly views: ViewSources;
  readonly events: EventStreams;
  readonly functionLog: FunctionLog;
  readonly logs: LogStreams;
  readonly scheduler: SchedulerView;
  /** The queue that takes work out of this process; absent if everything runs here. */
  readonly queueing?: Queueing | undefined;
  /** Absent if this host is in no fleet. */
  readonly fleet?: FleetMember | undefined;
  /** The log's settings, which can be changed over HTTP. */
  readonly logging: Logging;
}

/**
 * The version that `:name` and, if the path has it, `:version` name.
 *
 * @throws HostError 'unknown-function' | 'unknown-version', or 'not-ready' before the host has read its functions
 */
export function versionAsked(context: HostContext, exchange: Exchange): FunctionVersion {
  return versionNamed(context, exchange.pathParam('name'), exchange.param('version'));
}

/** {@link versionAsked}, for names from any source. */
export function versionNamed(
  context: Pick<HostContext, 'store' | 'lifecycle'>,
  name: string,
  version: string | undefined,
): FunctionVersion {
  const found = context.store.find(name, version);
  if (found !== undefined) return found;
  if (context.lifecycle.phase === 'starting') {
    throw new HostError('not-ready', 'the host is starting and has not read all of its functions yet');
  }
  if (version !== undefined && context.store.find(name) !== undefined) {
    throw new HostError('unknown-version', `function '${shown(name)}' has no version '${shown(version)}'`);
  }
  throw new HostError('unknown-function', `there is no function '${shown(name)}'`);
}

/** The body as a JSON object; empty without a body. */
export const objectBody = async (
  { bodies }: HostContext,
  exchange: Exchange,
  bytesMax: number,
): Promise<Record<string, unknown>> => objectOf(await bodies.read(exchange, bytesMax), parseJsonObject);

/** Settings and shares are short. */
const changeBytesMax = 256 * 1024;

/**
 * What a change asks for: parameters of the query and fields of the body, together; `null` takes a setting back. A name
 * that is not known is refused: passed over, `DELETE /functions/my-model?version=2` would remove every version.
 *
 * @param known undefined: the caller checks the names
 * @throws HostError 'bad-request' | 'bad-json'
 */
export async function changeAsked(
  { bodies }: HostContext,
  exchange: Exchange,
  known?: readonly string[],
): Promise<Record<string, unknown>> {
  const body = objectOf(await bodies.read(exchange, changeBytesMax), parseJsonChange);
  const asked = new Map<string, unknown>();
  for (const [name, value] of [...exchange.query(), ...Object.entries(body)]) {
    if (asked.has(name)) throw new HostError('bad-request', `'${shown(name)}' is given twice`);
    if (known?.includes(name) === false) {
      const taken = known.length === 0 ? 'this request takes none' : `known are ${known.join(', ')}`;
      throw new HostError('bad-request', `unknown parameter '${shown(name)}': ${taken}`);
    }
    asked.set(name, value);
  }
  return Object.fromEntries(asked);
}

const objectOf = (body: Buffer, parse: typeof parseJsonObject): Record<string, unknown> =>
  body.byteLength === 0 ? {} : parse(body, 'the body');

/** A whole number in the query; `usual` where it is left out. @throws HostError 'bad-request' */
export function wholeAsked(exchange: Exchange, name: string, usual: number, least = 0, most = Infinity): number {
  const text = exchange.query().get(name) ?? String(usual);
  const value = Number(text);
  if (text !== '' && Number.isInteger(value) && value >= least && value <= most) return value;
  const range = most === Infinity ? `of at least ${least}` : `from ${least} to ${most}`;
  throw new HostError('bad-request', `${name} is '${shown(text)}', but must be a whole number ${range}`);
}
