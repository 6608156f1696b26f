/** Every path that the host serves. */
import {
  anatomy,
  apiFunction,
  apiFunctions,
  happenings,
  history,
  memory,
  recorded,
  recordedOne,
  scheduler,
  schedulerSheet,
} from './api-routes.ts';
import { baseUrlOf } from './base-url.ts';
import { asynchronousResult, asynchronousStatus, callLater, cancelCall, listCalls } from './async-routes.ts';
import { call, infer } from './call-routes.ts';
import { dashboardFile, hasDashboard, sendPageFile } from './dashboard-files.ts';
import { events } from './event-stream.ts';
import { listReplays, removeReplay, showReplay, startReplay } from './replay-routes.ts';
import type { Exchange } from './exchange.ts';
import {
  blobExists,
  listFunctions,
  publishFunction,
  putBlob,
  removeFunction,
  showFunction,
} from './function-routes.ts';
import { homeText } from './home-page.ts';
import type { HostContext } from './host-context.ts';
import {
  index,
  listModels,
  live,
  load,
  modelConfig,
  modelMetadata,
  modelReady,
  modelStatistics,
  ready,
  serverMetadata,
  unload,
} from './model-routes.ts';
import { getBlob, listWorkers } from './worker-routes.ts';

export type RouteHandler = (context: HostContext, exchange: Exchange) => void | Promise<void>;

export interface Route {
  /** GET stands for HEAD as well, unless the path has a HEAD of its own. */
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
  /** In Hono's form. */
  readonly path: string;
  readonly handler: RouteHandler;
}

const model = '/v2/models/:name';
const ofVersion = '/versions/:version';

export const routes: readonly Route[] = [
  { method: 'POST', path: `${model}/infer`, handler: infer },
  { method: 'POST', path: `${model}${ofVersion}/infer`, handler: infer },
  { method: 'POST', path: '/function/:name', handler: call },
  { method: 'POST', path: `/function/:name${ofVersion}`, handler: call },
  { method: 'POST', path: '/async-function/:name', handler: callLater },
  { method: 'POST', path: `/async-function/:name${ofVersion}`, handler: callLater },
  { method: 'GET', path: '/async-function', handler: listCalls },
  { method: 'GET', path: '/async-function/:id', handler: asynchronousResult },
  { method: 'GET', path: '/async-function/:id/status', handler: asynchronousStatus },
  { method: 'DELETE', path: '/async-function/:id', handler: cancelCall },
  { method: 'GET', path: '/v2', handler: serverMetadata },
  { method: 'GET', path: '/v2/health/live', handler: live },
  { method: 'GET', path: '/v2/health/ready', handler: ready },
  { method: 'GET', path: '/v2/models', handler: listModels },
  { method: 'GET', path: model, handler: modelMetadata },
  { method: 'GET', path: `${model}${ofVersion}`, handler: modelMetadata },
  { method: 'GET', path: `${model}/ready`, handler: modelReady },
  { method: 'GET', path: `${model}${ofVersion}/ready`, handler: modelReady },
  { method: 'GET', path: `${model}/config`, handler: modelConfig },
  { method: 'GET', path: `${model}${ofVersion}/config`, handler: modelConfig },
  { method: 'GET', path: `${model}/stats`, handler: modelStatistics },
  { method: 'GET', path: `${model}${ofVersion}/stats`, handler: modelStatistics },
  { method: 'POST', path: '/v2/repository/index', handler: index },
  { method: 'POST', path: '/v2/repository/models/:name/load', handler: load },
  { method: 'POST', path: '/v2/repository/models/:name/unload', handler: unload },
  { method: 'GET', path: '/functions', handler: listFunctions },
  { method: 'GET', path: '/functions/:name', handler: showFunction },
  { method: 'GET', path: `/functions/:name${ofVersion}`, handler: showFunction },
  { method: 'PUT', path: '/functions/:name', handler: publishFunction },
  { method: 'DELETE', path: '/functions/:name', handler: removeFunction },
  { method: 'DELETE', path: `/functions/:name${ofVersion}`, handler: removeFunction },
  { method: 'GET', path: '/v2/workers', handler: listWorkers },
  { method: 'GET', path: '/blobs/:digest', handler: readBlob },
  { method: 'POST', path: '/blobs/:digest', handler: putBlob },
  { method: 'GET', path: '/metrics', handler: sendMetrics },
  { method: 'GET', path: '/api/history', handler: history },
  { method: 'GET', path: '/api/functions', handler: apiFunctions },
  { method: 'GET', path: '/api/functions/:name', handler: apiFunction },
  { method: 'GET', path: '/api/memory', handler: memory },
  { method: 'GET', path: '/api/scheduler', handler: scheduler },
  { method: 'GET', path: '/api/scheduler/:name', handler: schedulerSheet },
  { method: 'GET', path: '/api/happenings', handler: happenings },
  { method: 'GET', path: '/api/anatomy', handler: anatomy },
  { method: 'GET', path: '/api/anatomy/recorded', handler: recorded },
  { method: 'GET', path: '/api/anatomy/recorded/:id', handler: recordedOne },
  { method: 'GET', path: '/api/events', handler: events },
  { method: 'GET', path: '/api/replays', handler: listReplays },
  { method: 'POST', path: '/api/replays', handler: startReplay },
  { method: 'GET', path: '/api/replays/:id', handler: showReplay },
  { method: 'DELETE', path: '/api/replays/:id', handler: removeReplay },
  { method: 'GET', path: '/dashboard/:file', handler: dashboardFile },
  { method: 'GET', path: '/', handler: home },
];

/** Hono asks for GET where a client sends HEAD: one route for both, of which only the reading needs a key. */
async function readBlob(context: HostContext, exchange: Exchange): Promise<void> {
  if (exchange.method === 'HEAD') blobExists(context, exchange);
  else await getBlob(context, exchange);
}

async function sendMetrics({ metrics }: HostContext, exchange: Exchange): Promise<void> {
  exchange.text(200, metrics.contentType, await metrics.text());
}

function home({ store }: HostContext, exchange: Exchange): void {
  const isBrowser = exchange.header('accept')?.includes('text/html') === true;
  if (isBrowser && hasDashboard()) {
    sendPageFile(exchange, 'index.html');
    return;
  }
  const functions = store.names().flatMap((name) => store.find(name) ?? []);
  const page = { baseUrl: baseUrlOf(exchange), functions };
  exchange.text(200, 'text/plain; charset=utf-8', homeText(page));
}
