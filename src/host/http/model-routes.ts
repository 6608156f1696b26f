/** The Open Inference Protocol besides `infer`: server, health, metadata, statistics, repository. */
import { refuseWhileDraining } from '../access/access.ts';
import { HostError } from '../errors.ts';
import type { FunctionVersion } from '../types.ts';
import { allVersions } from '../rollout/versions.ts';
import { oipMetadata, repositoryIndex, tritonConfig, tritonStatistics } from './describe.ts';
import { clientSignal, type Exchange } from './exchange.ts';
import { objectBody, versionAsked, type HostContext } from './host-context.ts';
import { runInSlices } from '../../tensor/index.ts';
import { readLoadRequest } from './load-body.ts';
import { loadFunction, unloadFunction } from './repository.ts';

/** Triton's names for this host's extensions of the protocol's core. */
export const extensions = [
  'binary_tensor_data',
  'classification',
  'logging',
  'model_configuration',
  'model_repository',
  'model_repository(unload)',
  'statistics',
];
/** The bodies of repository requests are a few fields. */
const controlBytesMax = 64 * 1024;

export const serverMetadata = ({ hostVersion }: Pick<HostContext, 'hostVersion'>): object => ({
  name: 'turntable',
  version: hostVersion,
  extensions,
});

export const live = (): object => ({ live: true });

export function ready(context: HostContext): object {
  const { lifecycle, queueing } = context;
  refuseWhileDraining(context);
  if (lifecycle.phase === 'starting') throw new HostError('not-ready', 'the host is starting');
  // Without Redis the host still serves, so a load balancer should not take it out.
  const health = queueing?.link.health;
  return { ready: true, ...(health === undefined ? undefined : { redis: health.status }) };
}

export const listModels = ({ store }: HostContext): object => ({ models: store.names() });

/** `GET /v2/models/stats` is Triton's path for the statistics of every model, unless a function has that name. */
export function modelMetadata(context: HostContext, exchange: Exchange): object {
  const { store } = context;
  // A separate path would not work with Hono's fast router, which allows no fixed name where a parameter may be.
  if (exchange.pathParam('name') === 'stats' && store.find('stats') === undefined) {
    return statisticsView(context, allVersions(store));
  }
  const version = versionAsked(context, exchange);
  const state = context.invoker.outOfService.described(version);
  return { ...oipMetadata(store, version), ...state };
}

export function modelReady(context: HostContext, exchange: Exchange): object {
  const asked = versionAsked(context, exchange);
  const { name, version, state } = asked;
  refuseWhileDraining(context);
  context.invoker.outOfService.check(asked);
  switch (state.status) {
    case 'ready':
    case 'elsewhere':
      return { name, version, ready: true };
    case 'validating':
      throw new HostError('not-ready', `function '${name}' version ${version} is being validated`);
    case 'unavailable':
      throw new HostError('not-ready', `function '${name}' version ${version} cannot serve: ${state.reason}`);
  }
}

export const modelConfig = (context: HostContext, exchange: Exchange): object =>
  tritonConfig(versionAsked(context, exchange), context.config);

/** Of the version asked for; without one, of all versions of the model. */
export function modelStatistics(context: HostContext, exchange: Exchange): object {
  const asked = versionAsked(context, exchange);
  const versions = exchange.param('version') === undefined ? context.store.versions(asked.name) : [asked];
  return statisticsView(context, versions);
}

export const statisticsView = (
  { statistics }: Pick<HostContext, 'statistics'>,
  versions: readonly FunctionVersion[],
): object => ({
  model_stats: versions.map((version) => tritonStatistics(version, statistics.of(version))),
});

export async function index(context: HostContext, exchange: Exchange): Promise<object> {
  const { ready: readyOnly } = await objectBody(context, exchange, controlBytesMax);
  if (readyOnly !== undefined && typeof readyOnly !== 'boolean') {
    throw new HostError('bad-request', "'ready' is not true or false");
  }
  return repositoryIndex(context.store, context.invoker.outOfService, readyOnly ?? false);
}

/** `POST /v2/repository/models/{name}/load` */
export async function load(context: HostContext, exchange: Exchange): Promise<void> {
  const name = exchange.pathParam('name');
  const body = await context.bodies.read(exchange, context.config.limits.bodyBytesMax);
  const publisher = { name: context.access.callerOf(exchange), signal: clientSignal(exchange.incoming.socket) };
  const request = await runInSlices(readLoadRequest(body, name));
  const { version, loadMs } = await loadFunction(context, name, request, publisher);
  exchange.json(200, { name: version.name, version: version.version, state: 'READY' }, [
    'X-Model-Id',
    version.key,
    'X-Model-Load-Time',
    Math.round(loadMs * 1000) / 1e6,
  ]);
}

/** `POST /v2/repository/models/{name}/unload` */
export async function unload(context: HostContext, exchange: Exchange): Promise<object> {
  await objectBody(context, exchange, controlBytesMax);
  const name = exchange.pathParam('name');
  const held = await unloadFunction(context, name);
  return { name, unloaded: held.map(({ version }) => version) };
}
