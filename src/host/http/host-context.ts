/** What every route works with. */
import type { Logger } from 'pino';
import type { CpuPools } from '../../cpu/index.ts';
import type { HostConfig } from '../config.ts';
import type { ViewSources } from '../dashboard/index.ts';
import { HostError } from '../errors.ts';
import type { SchedulerView } from '../gpu/index.ts';
import type { Invoker } from '../invoke.ts';
import type { Metrics } from '../metrics.ts';
import type { ReplayRuns } from '../replays.ts';
import type { Queueing } from '../queueing/index.ts';
import type { Statistics } from '../statistics.ts';
import type { FunctionVersion, ModelStore } from '../types.ts';
import { authorizeManagement } from './auth.ts';
import type { Bodies } from './body.ts';
import type { EventStreams } from './event-stream.ts';
import type { Exchange } from './exchange.ts';
import type { Lifecycle } from './lifecycle.ts';

export interface HostContext {
  readonly config: HostConfig;
  readonly store: ModelStore;
  readonly invoker: Invoker;
  readonly pools: CpuPools;
  readonly metrics: Metrics;
  readonly statistics: Statistics;
  readonly logger: Logger;
  readonly lifecycle: Lifecycle;
  /** Of this program. */
  readonly hostVersion: string;
  readonly bodies: Bodies;
  /** What the dashboard's API reads. */
  readonly views: ViewSources;
  readonly events: EventStreams;
  readonly scheduler: SchedulerView;
  /** Absent where the host was not told how replays are run. */
  readonly replays?: ReplayRuns | undefined;
  /** What carries work out of this process; absent where everything runs here. */
  readonly queueing?: Queueing | undefined;
  /** Whether successes are logged as well; asked once, since each line costs. */
  readonly logsSuccess: boolean;
}

/** A path parameter that the route declares. */
export function pathParam(exchange: Exchange, name: string): string {
  const value = exchange.param(name);
  if (value === undefined) throw new HostError('internal', `the route has no parameter '${name}'`);
  return value;
}

/**
 * The version that `:name` and, where the path has it, `:version` ask for.
 *
 * @throws HostError 'unknown-function' | 'unknown-version', or 'not-ready' while the host has not read its functions yet
 */
export function versionAsked(context: HostContext, exchange: Exchange): FunctionVersion {
  const name = pathParam(exchange, 'name');
  const version = exchange.param('version');
  const found = context.store.find(name, version);
  if (found !== undefined) return found;
  if (context.lifecycle.phase === 'starting') {
    throw new HostError('not-ready', 'the host is starting and has not read all of its functions yet');
  }
  if (version !== undefined && context.store.find(name) !== undefined) {
    throw new HostError('unknown-version', `function '${shownName(name)}' has no version '${shownName(version)}'`);
  }
  throw new HostError('unknown-function', `there is no function '${shownName(name)}'`);
}

export function shownName(name: string): string {
  return name.length <= 80 ? name : `${name.slice(0, 77)}...`;
}

/** Does `work` as one of the requests that the limit counts; refused while draining or over the limit. */
export async function admitted(context: HostContext, work: () => Promise<void>): Promise<void> {
  const { statistics, lifecycle, config } = context;
  if (lifecycle.phase === 'draining')
    throw new HostError('draining', 'the host is shutting down and takes no new work');
  if (statistics.requestsInFlight >= config.limits.requestsInFlightMax) {
    throw new HostError(
      'too-many-requests',
      `${config.limits.requestsInFlightMax} requests are in progress already, which is this host's limit`,
    );
  }
  statistics.requestsInFlight++;
  try {
    await work();
  } finally {
    statistics.requestsInFlight--;
  }
}

/** {@link admitted}, for who may manage functions. */
export function managed(context: HostContext, exchange: Exchange, work: () => Promise<void>): Promise<void> {
  authorizeManagement(context.config.apiKeys, exchange.incoming);
  return admitted(context, work);
}
