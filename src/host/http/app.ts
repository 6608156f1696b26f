/** Hono's router over Node's own request and response, with one place that turns every failure into a reply. */
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { Hono, type Context } from 'hono';
import type { HttpBindings } from '@hono/node-server';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { HostError, toHostError } from '../errors.ts';
import { accountReply } from '../replied.ts';
import { Exchange, sendError, type HeaderList } from './exchange.ts';
import { call, infer } from './call-routes.ts';
import type { HostContext } from './host-context.ts';
import type { RouteHandler } from './route.ts';
import { routes } from './routes.ts';
import { type RouteScope, checkOrigin, isAllowedOrigin } from '../access/access.ts';

type Env = { Bindings: HttpBindings };

export interface App {
  /** For Node's server by way of Hono's adaptor. */
  readonly fetch: Hono<Env>['fetch'];
  /**
   * Answers a call under a plain path; undefined: the request is for `fetch`. The way through Hono takes a tenth of the
   * time of a small call (`npm run bench -- http`).
   */
  call(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> | undefined;
}

/** The router's result for a request. */
interface Asked {
  readonly path: string;
  readonly param: (name: string) => string | undefined;
}

/** With a name that needs no decoding. */
const plainCall = /^\/(?:v2\/models\/([\w.-]+)\/infer|function\/([\w.-]+))$/;

/** What OpenFaaS' clients append to a name: the namespace of its functions, unless they chose others. */
const namespace = '.openfaas-fn';

/** The function that a path names, with or without a namespace. One that has the whole name comes first. */
function functionCalled({ store }: HostContext, name: string): string {
  const hasNamespace = name.length > namespace.length && name.endsWith(namespace) && store.find(name) === undefined;
  return hasNamespace ? name.slice(0, -namespace.length) : name;
}

export function createApp(context: HostContext): App {
  const app = new Hono<Env>({ strict: false });
  const answer = async (c: Context<Env>, handler: RouteHandler, scope?: RouteScope): Promise<Response> => {
    const { path } = c.req;
    const isCall = /^\/(?:async-)?function\//.test(path);
    const param = (name: string): string | undefined => {
      const value = c.req.param(name);
      return isCall && name === 'name' && value !== undefined ? functionCalled(context, value) : value;
    };
    const asked = { path, param };
    await run(app, context, c.env.incoming, c.env.outgoing, asked, handler, scope);
    return RESPONSE_ALREADY_SENT;
  };
  for (const { method, path, handler, scope } of routes) app.on(method, path, (c) => answer(c, handler, scope));
  app.notFound((c) => answer(c, unserved(app, c)));
  // A route catches all its errors; one that arrives here is a bug in the router or in this file.
  app.onError((error, c) =>
    answer(c, () => {
      throw error;
    }),
  );
  return {
    fetch: app.fetch,
    call: (incoming, outgoing) => {
      const { method, url: path = '/' } = incoming;
      if (method === 'OPTIONS' && path === '*') {
        return run(app, context, incoming, outgoing, { path, param: () => undefined }, serverOptions);
      }
      const match = method === 'POST' ? plainCall.exec(path) : null;
      if (match === null) return undefined;
      const [, model, called] = match;
      const name = model ?? functionCalled(context, called!);
      const param = (asked: string): string | undefined => (asked === 'name' ? name : undefined);
      return run(app, context, incoming, outgoing, { path, param }, model === undefined ? call : infer, 'invoke');
    },
  };
}

async function run(
  app: Hono<Env>,
  context: HostContext,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  { path, param }: Asked,
  handler: RouteHandler,
  scope: RouteScope = 'open',
): Promise<void> {
  const exchange = new Exchange(incoming, outgoing, context.exchangeMeans, param);
  try {
    checkHeaders(exchange);
    checkOrigin(context.config, exchange.incoming, scope);
    allowOrigin(context.config.cors.origins, exchange);
    exchange.keyName = admitClient(context, scope, exchange);
    const reply = await handler(context, exchange);
    if (reply !== undefined) exchange.json(200, reply);
    account(context, exchange, exchange.outgoing.statusCode, undefined, scope);
  } catch (error) {
    const failure = toHostError(error);
    account(context, exchange, failure.status, failure, scope);
    sendError(exchange, failure, headersFor(app, exchange.method, path, failure));
  }
}

/** Name of the API key of a client's request. @throws HostError */
function admitClient({ access, connections }: HostContext, scope: RouteScope, exchange: Exchange): string | undefined {
  const { incoming, outgoing } = exchange;
  connections.admit(
    incoming.socket,
    (name) => exchange.header(name),
    (over) => outgoing.once('close', over),
  );
  return access.admit(scope, exchange);
}

/** Checks that Node leaves to us, so that we refuse with our own messages. */
function checkHeaders({ incoming }: Exchange): void {
  const { host, expect, 'transfer-encoding': coding = 'chunked' } = incoming.headers;
  checkOneHost(incoming, host);
  if (host === undefined && incoming.httpVersion === '1.1') {
    throw new HostError('bad-request', 'the request has no Host header, which HTTP/1.1 asks for');
  }
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') {
    throw new HostError('bad-request', "the Expect header is not '100-continue'", { status: 417 });
  }
  // Node takes the chunks apart, and would hand over what is still compressed.
  if (coding.toLowerCase() !== 'chunked') {
    const why = "the Transfer-Encoding is not 'chunked' alone; a compressed body is told by Content-Encoding";
    throw new HostError('bad-request', why, { status: 501 });
  }
}

/** Whoever stands in front may go by another of two hosts (RFC 9112, 3.2). */
function checkOneHost({ rawHeaders, url = '' }: IncomingMessage, host: string | undefined): void {
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++;
  }
  if (hosts > 1) throw new HostError('bad-request', 'the request has several Host headers, and one is allowed');
  const target = url.startsWith('/') ? undefined : /^https?:\/\/([^/?#]*)/i.exec(url)?.[1];
  if (target !== undefined && host !== undefined && target.toLowerCase() !== host.toLowerCase()) {
    throw new HostError('bad-request', "the request's target names another host than its Host header");
  }
}

/** Headers of a reply that a page may read besides those that any page may. */
const exposedHeaders =
  'X-Request-ID, X-Call-Id, X-Turntable-Error, X-Turntable-Placement, X-Model-Id, X-Model-Cold-Start, ' +
  'Inference-Header-Content-Length, Location, Retry-After, X-Call-Status, X-Function-Status';

/** Tells a browser that the page may read the reply, if its origin is configured. */
function allowOrigin(origins: readonly string[], { incoming, outgoing }: Exchange): void {
  if (origins.length === 0) return;
  outgoing.setHeader('Vary', 'Origin');
  const { origin } = incoming.headers;
  if (origin === undefined || !isAllowedOrigin(origins, origin)) return;
  outgoing.setHeader('Access-Control-Allow-Origin', origins.includes('*') ? '*' : origin);
  outgoing.setHeader('Access-Control-Expose-Headers', exposedHeaders);
  const { 'access-control-request-method': method, 'access-control-request-headers': headers } = incoming.headers;
  if (incoming.method !== 'OPTIONS' || method === undefined) return;
  outgoing.setHeader('Access-Control-Allow-Methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
  if (headers !== undefined) outgoing.setHeader('Access-Control-Allow-Headers', headers);
  outgoing.setHeader('Access-Control-Max-Age', '600');
}

/** `OPTIONS *` asks about the server as a whole (RFC 9110, 9.3.7); `*` is no path for the router. */
function serverOptions(_context: HostContext, exchange: Exchange): void {
  exchange.send(204, ['Allow', 'OPTIONS, GET, HEAD, POST, PUT, PATCH, DELETE'], []);
}

function unserved(app: Hono<Env>, c: Context<Env>): RouteHandler {
  return (_context, exchange) => {
    const allowed = allowedMethods(app, c.req.path);
    if (allowed.length > 0) {
      if (exchange.method === 'OPTIONS') {
        exchange.send(204, ['Allow', allowed.join(', ')], []);
        return;
      }
      throw new HostError('method-not-allowed', `${exchange.method.slice(0, 20)} is not for this path`);
    }
    throw new HostError('unknown-path', 'nothing is served at this path');
  };
}

function allowedMethods(app: Hono<Env>, path: string): string[] {
  const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'].filter(
    (method) => app.router.match(method, path)[0].length > 0,
  );
  if (methods.length === 0) return [];
  return ['OPTIONS', ...(methods.includes('GET') ? ['HEAD'] : []), ...methods];
}

function headersFor(app: Hono<Env>, method: string, path: string, failure: HostError): HeaderList {
  switch (failure.code) {
    case 'unauthorized':
      return ['WWW-Authenticate', 'Bearer'];
    case 'method-not-allowed': {
      const served = allowedMethods(app, path);
      // A function without a handler has routes for these, and refuses them.
      const refused = served.includes(method) ? ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE'] : [];
      const allowed = served.filter((each) => !refused.includes(each));
      return ['Allow', allowed.join(', ')];
    }
    default:
      return [];
  }
}

/** Counts and logs a request. Bodies, queries and keys are never logged. */
function account(
  context: HostContext,
  exchange: Exchange,
  status: number,
  failure: HostError | undefined,
  scope: RouteScope,
): void {
  const { called, sentBytes: replyBytes } = exchange;
  const durationMs = performance.now() - exchange.arrivalMs;
  const requestBytes = Number(exchange.incoming.headers['content-length'] ?? 0);
  const replied = { called, status, failure, durationMs, requestBytes, replyBytes };
  const { logger, logging } = context;
  // Who changed what is served is logged, but not who called.
  const isManaged = failure === undefined && exchange.keyName !== undefined && scope === 'publish';
  const isLogged = failure !== undefined || isManaged || logging.logsSuccess;
  const fields = isLogged ? logFields(exchange, status, durationMs) : {};
  accountReply(context, replied, fields);
  if (isManaged) logger.info(fields, 'managed');
  else if (failure === undefined && isLogged) logger.debug(fields, 'request');
}

function logFields(exchange: Exchange, status: number, durationMs: number): object {
  const { method, url, functionName, requestId, callId, traceparent, keyName } = exchange;
  return {
    method,
    path: url.split('?', 1)[0]?.slice(0, 200),
    status,
    function: functionName,
    key: keyName,
    requestId,
    callId,
    traceparent,
    durationMs: Math.round(durationMs * 1000) / 1000,
  };
}
