/** Every path that the host serves. */
import { refuseWhileDraining, type RouteScope } from '../access/access.ts';
import * as api from './api-routes.ts';
import * as later from './async-routes.ts';
import * as calls from './call-routes.ts';
import * as fleet from './fleet-routes.ts';
import * as functions from './function-routes.ts';
import * as models from './model-routes.ts';
import * as triton from './triton-routes.ts';
import * as versions from './version-routes.ts';
import { baseUrlOf } from './base-url.ts';
import { dashboardFile, hasDashboard, sendPageFile } from './dashboard-files.ts';
import { toHostError } from '../errors.ts';
import { sendError, type Exchange } from './exchange.ts';
import { homeText } from './home-page.ts';
import type { HostContext } from './host-context.ts';
import { functionLog } from './log-routes.ts';
import { openApi } from './openapi.ts';
import type { ReplyName } from './openapi-schemas.ts';
import type { Route, RouteHandler } from './route.ts';
import { getBlob, listWorkers } from './worker-routes.ts';

type Method = Route['method'];
type Rest = readonly [path: string, handler: RouteHandler, about: string, reply?: ReplyName];

const route =
  (method: Method, scope: RouteScope) =>
  (...[path, handler, about, reply]: Rest): Route => ({
    method,
    path,
    handler,
    scope,
    about,
    ...(reply === undefined ? {} : { reply }),
  });

/** A handler around another. The description of the paths uses its name. */
const around = (handler: RouteHandler, outer: RouteHandler): RouteHandler =>
  Object.defineProperty(outer, 'name', { value: handler.name });

/** Management of functions: never queued behind calls, nor refused for their number; only while the host drains. */
const managing =
  (method: Method) =>
  (...[path, handler, ...rest]: Rest): Route => {
    const managed = around(handler, (context, exchange) => {
      refuseWhileDraining(context);
      return handler(context, exchange);
    });
    return route(method, 'publish')(path, managed, ...rest);
  };
/** Asks whether something is ready: 503 is its answer then, and no request that failed. */
const probe =
  (scope: RouteScope) =>
  (...[path, handler, ...rest]: Rest): Route => {
    const probed = around(handler, async (context, exchange) => {
      try {
        return await handler(context, exchange);
      } catch (error) {
        const failure = toHostError(error);
        if (failure.status !== 503) throw failure;
        sendError(exchange, failure);
        return undefined;
      }
    });
    return route('GET', scope)(path, probed, ...rest);
  };
const open = route('GET', 'open');
const get = route('GET', 'read');
/** Requests with a body that only read. */
const ask = route('POST', 'read');
const call = route('POST', 'invoke');
const callGet = route('GET', 'invoke');
/** What OpenFaaS' gateway passes on besides POST. */
const handlerMethods = ['GET', 'PUT', 'PATCH', 'DELETE'] as const;
const post = managing('POST');
const put = managing('PUT');
const patch = managing('PATCH');
const del = managing('DELETE');

/** The route itself, and the same with a version after the name. */
function versioned(whole: Route): Route[] {
  return [whole, { ...whole, path: whole.path.replace('/:name', '/:name/versions/:version') }];
}

/** {@link versioned}, and both with a path behind them. Of two routes that fit, the first counts. */
function withPaths(whole: Route): Route[] {
  const below = versioned({ ...whole, path: `${whole.path}/:path{.+}` });
  return [...versioned(whole), ...below.toReversed()];
}

const model = '/v2/models/:name';
const inferAbout = 'Runs a model on tensors, as JSON or as JSON followed by binary data';
const callAbout = 'Calls a function: through its handler, or with nested numbers as JSON';
const traceAbout = 'Trace settings: always off';
const regionsAbout = 'Regions of shared memory: always none';

export const routes: readonly Route[] = [
  ...versioned(call(`${model}/infer`, calls.infer, inferAbout, 'InferReply')),
  ...withPaths(call('/function/:name', calls.call, callAbout)),
  ...handlerMethods.flatMap((method) =>
    withPaths(route(method, 'invoke')('/function/:name', calls.callHandler, 'Calls a function that has a handler')),
  ),
  ...withPaths(call('/async-function/:name', later.callLater, 'Accepts a call to be run later', 'AcceptedCall')),
  managing('GET')('/async-function', later.listCalls, 'The latest asynchronous calls'),
  callGet('/async-function/:id', later.asynchronousResult, 'The reply of an asynchronous call; 202 until it is there'),
  callGet('/async-function/:id/status', later.asynchronousStatus, 'How an asynchronous call stands', 'CallStatus'),
  route('DELETE', 'invoke')('/async-function/:id', later.cancelCall, 'Cancels an asynchronous call'),
  open('/openapi.json', sendOpenApi, 'This description', 'Description'),
  probe('open')('/healthz', models.ready, 'Whether the host takes work', 'Ready'),
  open('/v2', models.serverMetadata, 'Name, version and extensions of the server', 'ServerMetadata'),
  open('/v2/health/live', models.live, 'Whether the process answers', 'Live'),
  probe('open')('/v2/health/ready', models.ready, 'Whether the host takes work', 'Ready'),
  get('/v2/logging', triton.logSettings, 'What is logged', 'LogSettings'),
  post('/v2/logging', triton.changeLogSettings, 'Changes what is logged', 'LogSettings'),
  ...['/v2/trace/setting', `${model}/trace/setting`].flatMap((path) => [
    get(path, triton.traceSettings, traceAbout, 'TraceSettings'),
    post(path, triton.changeTraceSettings, 'Takes only the trace settings that hold', 'TraceSettings'),
  ]),
  ...['/v2/systemsharedmemory', '/v2/cudasharedmemory'].flatMap((memory) => [
    get(`${memory}/status`, triton.sharedMemoryStatus, regionsAbout, 'Regions'),
    ask(`${memory}/region/:region/register`, triton.registerSharedMemory, 'Refused: shared memory is not offered'),
    ask(`${memory}/unregister`, triton.forgetSharedMemory, 'Gives up all regions, of which there are none'),
  ]),
  get('/v2/models', models.listModels, 'Names of the models', 'ModelList'),
  ...versioned(get(model, models.modelMetadata, 'Inputs and outputs of a model', 'ModelMetadata')),
  ...versioned(probe('read')(`${model}/ready`, models.modelReady, 'Whether a model can be called', 'ModelReady')),
  ...versioned(get(`${model}/config`, models.modelConfig, "Configuration of a model in Triton's form", 'ModelConfig')),
  ...versioned(
    get(`${model}/stats`, models.modelStatistics, "Statistics of a model in Triton's form", 'ModelStatistics'),
  ),
  ask('/v2/repository/index', models.index, 'Every version of every model, and its state', 'RepositoryIndex'),
  post(
    '/v2/repository/models/:name/load',
    models.load,
    'Loads a model, with a configuration or files of the body',
    'Loaded',
  ),
  post('/v2/repository/models/:name/unload', models.unload, 'Unloads a model', 'Unloaded'),
  get('/functions', functions.listFunctions, 'Every function', 'FunctionList'),
  ...versioned(get('/functions/:name', functions.showFunction, 'One function', 'FunctionView')),
  put('/functions/:name', functions.publishFunction, 'Publishes a model as a function', 'FunctionView'),
  ...versioned(
    patch('/functions/:name', versions.changeFunction, 'Changes settings without an upload', 'FunctionView'),
  ),
  route('GET', 'publish')(
    '/functions/:name/log',
    functionLog,
    'What a function, its instances and the host logged',
    'Log',
  ),
  get('/functions/:name/versions', versions.listVersions, 'Versions of a function and their shares', 'VersionList'),
  get('/functions/:name/traffic', versions.showTraffic, 'How calls are divided over the versions', 'Traffic'),
  patch('/functions/:name/traffic', versions.changeTraffic, 'Divides calls over versions', 'Traffic'),
  post('/functions/:name/rollback', versions.rollBack, 'Gives all calls to the version that served before', 'Traffic'),
  post(
    '/functions/:name/versions/:version/promote',
    versions.promoteVersion,
    'Gives a version all calls, or some',
    'Traffic',
  ),
  ...versioned(del('/functions/:name', functions.removeFunction, 'Removes a function, or one version of it')),
  get('/v2/fleet', fleet.showFleet, 'The hosts of the fleet'),
  get('/v2/fleet/functions/:name', fleet.showFleetFunction, "A function's homes, and the hosts that have its content"),
  post('/v2/fleet/hosts/:host/drain', fleet.drainHost, 'Has a host of the fleet take no calls of others, or again'),
  get('/v2/workers', listWorkers, 'Workers that take overflow', 'Workers'),
  route('GET', 'publish')('/blobs/:digest', readBlob, 'A stored file, or whether it is stored'),
  post('/blobs/:digest', functions.putBlob, 'Stores a file under its sha256'),
  get('/metrics', sendMetrics, 'Metrics for Prometheus'),
  get('/api/history', api.history, 'Figures over time, for the dashboard'),
  get('/api/functions', api.apiFunctions, 'Functions as the dashboard lists them'),
  get('/api/functions/:name', api.apiFunction, 'A function as the dashboard shows it'),
  get('/api/trouble', api.trouble, 'Which functions miss their SLO, and why'),
  get('/api/errors', api.errors, 'Requests that were refused or failed, by status and cause'),
  get('/api/memory', api.memory, 'What fills the memory of GPUs, host and disk'),
  get('/api/machine', api.machine, 'How busy cores, GPUs, queues and workers are'),
  get('/api/scheduler', api.scheduler, 'What the scheduler goes by'),
  get('/api/scheduler/:name', api.schedulerSheet, "The scheduler's offers for one function"),
  get('/api/event-log', api.eventLog, 'What happened lately'),
  get('/api/anatomy', api.anatomy, 'A simulated cold start, layer by layer'),
  get('/api/anatomy/recorded', api.recorded, 'Recorded cold starts'),
  get('/api/anatomy/recorded/:id', api.recordedOne, 'One recorded cold start'),
  get('/api/events', api.events, 'Events as they happen, as server-sent events'),
  open('/dashboard/:file', dashboardFile, 'A file of the dashboard'),
  open('/', home, 'The dashboard, or a text for terminals'),
];

/** Hono looks for GET when a client sends HEAD: one route for both. */
async function readBlob(context: HostContext, exchange: Exchange): Promise<void> {
  if (exchange.method === 'HEAD') functions.blobExists(context, exchange);
  else await getBlob(context, exchange);
}

/** Made from the table above, when it is first asked for. */
function sendOpenApi({ hostVersion }: HostContext): object {
  return openApi(routes, hostVersion);
}

async function sendMetrics({ metrics }: HostContext, exchange: Exchange): Promise<void> {
  exchange.text(200, metrics.contentType, await metrics.text());
}

function home({ store, access }: HostContext, exchange: Exchange): void {
  const isBrowser = exchange.header('accept')?.includes('text/html') === true;
  if (isBrowser && hasDashboard()) {
    sendPageFile(exchange, 'index.html');
    return;
  }
  // The page contains no function names; this text does.
  access.authorize('read', exchange);
  const functions = store.names().flatMap((name) => store.find(name) ?? []);
  exchange.text(200, 'text/plain; charset=utf-8', homeText(baseUrlOf(exchange), functions));
}
