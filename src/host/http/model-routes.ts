/** The Open Inference Protocol besides `infer`: server, health, metadata, statistics, repository. */
import { HostError } from '../errors.ts';
import type { FunctionVersion } from '../types.ts';
import { oipMetadata, repositoryIndex, tritonConfig, tritonStatistics } from './describe.ts';
import type { Exchange } from './exchange.ts';
import { managed, pathParam, versionAsked, type HostContext } from './host-context.ts';
import { isObject, parseJsonObject } from './json-body.ts';

/** Triton's names of what this host offers beyond the protocol's core. */
const extensions = [
  'binary_tensor_data',
  'model_configuration',
  'model_repository',
  'model_repository(unload)',
  'statistics',
];
/** The bodies of repository requests are a few fields. */
const controlBytesMax = 64 * 1024;

export function serverMetadata(context: HostContext, exchange: Exchange): void {
  exchange.json(200, { name: 'turntable', version: context.hostVersion, extensions });
}

export function live(_context: HostContext, exchange: Exchange): void {
  exchange.json(200, { live: true });
}

export function ready({ lifecycle, queueing }: HostContext, exchange: Exchange): void {
  switch (lifecycle.phase) {
    case 'ready': {
      // Without Redis the host serves all the same, so that nobody should take it out of a load balancer.
      const health = queueing?.health();
      exchange.json(200, { ready: true, ...(health === undefined ? undefined : { redis: health.status }) });
      return;
    }
    case 'starting':
      throw new HostError('not-ready', 'the host is starting');
    case 'draining':
      throw new HostError('draining', 'the host is shutting down and takes no new work');
  }
}

export function listModels({ store }: HostContext, exchange: Exchange): void {
  exchange.json(200, { models: store.names() });
}

/** `GET /v2/models/stats` is Triton's path for the statistics of every model, unless a function has that name. */
export function modelMetadata(context: HostContext, exchange: Exchange): void {
  const { store } = context;
  // A path of its own would beat Hono's fast router, which takes no fixed name where a parameter may stand.
  if (pathParam(exchange, 'name') === 'stats' && store.find('stats') === undefined) {
    const versions = store.names().flatMap((name) => store.versions(name));
    sendStatistics(context, exchange, versions);
    return;
  }
  exchange.json(200, oipMetadata(context.store, versionAsked(context, exchange)));
}

export function modelReady(context: HostContext, exchange: Exchange): void {
  const { name, version, state } = versionAsked(context, exchange);
  if (context.lifecycle.phase === 'draining') {
    throw new HostError('draining', 'the host is shutting down and takes no new work');
  }
  switch (state.status) {
    case 'ready':
      exchange.json(200, { name, version, ready: true });
      return;
    case 'validating':
      throw new HostError('not-ready', `function '${name}' version ${version} is being validated`);
    case 'unavailable':
      throw new HostError('not-ready', `function '${name}' version ${version} cannot serve: ${state.reason}`);
  }
}

export function modelConfig(context: HostContext, exchange: Exchange): void {
  exchange.json(200, tritonConfig(versionAsked(context, exchange), context.config.cpu));
}

/** Of the version asked for; without one, of all versions of the model. */
export function modelStatistics(context: HostContext, exchange: Exchange): void {
  const asked = versionAsked(context, exchange);
  const versions = exchange.param('version') === undefined ? context.store.versions(asked.name) : [asked];
  sendStatistics(context, exchange, versions);
}

function sendStatistics(context: HostContext, exchange: Exchange, versions: readonly FunctionVersion[]): void {
  const statistics = versions.map((version) => tritonStatistics(version, context.statistics.of(version)));
  exchange.json(200, { model_stats: statistics });
}

export async function index(context: HostContext, exchange: Exchange): Promise<void> {
  const { ready: readyOnly } = await controlBody(context, exchange);
  if (readyOnly !== undefined && typeof readyOnly !== 'boolean') {
    throw new HostError('bad-request', "'ready' is not true or false");
  }
  exchange.json(200, repositoryIndex(context.store, readyOnly ?? false));
}

/** Reads the function's folder, which may be new or changed, then has an instance ready. */
export async function load(context: HostContext, exchange: Exchange): Promise<void> {
  await managed(context, exchange, async () => {
    const { parameters } = await controlBody(context, exchange);
    const overrides = isObject(parameters) ? Object.keys(parameters) : [];
    const override = overrides.find((key) => key === 'config' || key.startsWith('file:'));
    if (override !== undefined) {
      const advice = 'publish a new version with PUT /functions/{name} instead';
      throw new HostError('bad-request', `a load cannot bring the parameter '${override.slice(0, 80)}': ${advice}`);
    }
    await context.store.reload(pathParam(exchange, 'name'));
    const version = await context.invoker.ready(versionAsked(context, exchange));
    const loadMs = await context.invoker.load(version);
    exchange.json(200, { name: version.name, version: version.version, state: 'READY' }, [
      'X-Model-Id',
      version.key,
      'X-Model-Load-Time',
      Math.round(loadMs * 1000) / 1e6,
    ]);
  });
}

/** Gives the instances of every version back; the next call loads again. */
export async function unload(context: HostContext, exchange: Exchange): Promise<void> {
  await managed(context, exchange, async () => {
    await controlBody(context, exchange);
    const { name } = versionAsked(context, exchange);
    const running = new Set(context.pools.states().map(({ key }) => key));
    const versions = context.store.versions(name).filter(({ key }) => running.has(key));
    await Promise.all(versions.map((version) => context.invoker.unload(version)));
    exchange.json(200, { name: pathParam(exchange, 'name'), unloaded: versions.map(({ version }) => version) });
  });
}

/** A JSON object, or nothing. */
async function controlBody(context: HostContext, exchange: Exchange): Promise<Record<string, unknown>> {
  const body = await context.bodies.read(exchange, controlBytesMax);
  return body.byteLength === 0 ? {} : parseJsonObject(body, 'the body');
}
