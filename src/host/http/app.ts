/** Hono's router over Node's own request and response, with one place where every failure becomes a reply. */
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { Hono, type Context } from 'hono';
import type { HttpBindings } from '@hono/node-server';
import { HostError, toHostError } from '../errors.ts';
import { Exchange, sendError, type HeaderList } from './exchange.ts';
import type { HostContext } from './host-context.ts';
import { routes, type RouteHandler } from './routes.ts';

type Env = { Bindings: HttpBindings };

export function createApp(context: HostContext): Hono<Env> {
  const app = new Hono<Env>({ strict: false });
  for (const { method, path, handler } of routes) {
    app.on(method, path, (c) => run(app, context, c, (name) => c.req.param(name), handler));
  }
  app.notFound((c) => run(app, context, c, () => undefined, unserved(app, c)));
  // A route catches everything itself; what still comes here is a defect of the router or of this file.
  app.onError((error, c) =>
    run(
      app,
      context,
      c,
      () => undefined,
      () => {
        throw error;
      },
    ),
  );
  return app;
}

async function run(
  app: Hono<Env>,
  context: HostContext,
  c: Context<Env>,
  param: (name: string) => string | undefined,
  handler: RouteHandler,
): Promise<Response> {
  const exchange = new Exchange(
    c.env.incoming,
    c.env.outgoing,
    context.lifecycle,
    context.config.limits.bodyTimeoutMs,
    param,
  );
  try {
    checkHeaders(exchange);
    await handler(context, exchange);
    account(context, exchange, exchange.outgoing.statusCode, undefined);
  } catch (error) {
    const failure = toHostError(error);
    account(context, exchange, failure.status, failure);
    sendError(exchange, failure, headersFor(app, c, failure));
  }
  return RESPONSE_ALREADY_SENT;
}

/** What Node leaves to us, so that it is refused in our own words. */
function checkHeaders({ incoming }: Exchange): void {
  const { host, expect } = incoming.headers;
  if (host === undefined && incoming.httpVersion === '1.1') {
    throw new HostError('bad-request', 'the request has no Host header, which HTTP/1.1 asks for');
  }
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') {
    throw new HostError('bad-request', "the Expect header is not '100-continue'", { status: 417 });
  }
}

function unserved(app: Hono<Env>, c: Context<Env>): RouteHandler {
  return (_context, exchange) => {
    if (allowedMethods(app, c).length > 0) {
      throw new HostError('method-not-allowed', `${exchange.method.slice(0, 20)} is not for this path`);
    }
    throw new HostError('unknown-path', 'nothing is served at this path');
  };
}

function allowedMethods(app: Hono<Env>, c: Context<Env>): string[] {
  const methods = ['GET', 'POST', 'PUT', 'DELETE'].filter(
    (method) => app.router.match(method, c.req.path)[0].length > 0,
  );
  return methods.includes('GET') ? ['HEAD', ...methods] : methods;
}

function headersFor(app: Hono<Env>, c: Context<Env>, failure: HostError): HeaderList {
  switch (failure.code) {
    case 'unauthorized':
      return ['WWW-Authenticate', 'Bearer'];
    case 'method-not-allowed':
      return ['Allow', allowedMethods(app, c).join(', ')];
    default:
      return [];
  }
}

/** Counts and logs a request. Bodies, queries and keys are never logged. */
function account(context: HostContext, exchange: Exchange, status: number, failure: HostError | undefined): void {
  const { statistics, logger } = context;
  const durationMs = performance.now() - exchange.arrivalMs;
  if (exchange.functionName !== undefined) statistics.called(exchange.functionName, status, durationMs / 1000);
  if (failure === undefined) {
    if (context.logsSuccess) logger.debug(logFields(exchange, status, durationMs), 'request');
    return;
  }
  statistics.failed(failure.code);
  const fields = { ...logFields(exchange, status, durationMs), code: failure.code, error: failure.message };
  if (failure.code === 'internal') logger.error({ ...fields, err: failure.cause }, 'request failed');
  else if (status >= 500 && status !== 503) logger.error(fields, 'request failed');
  else logger.warn(fields, 'request failed');
}

function logFields(exchange: Exchange, status: number, durationMs: number): object {
  const { method, url, functionName, requestId, callId, traceparent } = exchange;
  return {
    method,
    path: url.split('?', 1)[0]?.slice(0, 200),
    status,
    function: functionName,
    requestId,
    callId,
    traceparent,
    durationMs: Math.round(durationMs * 1000) / 1000,
  };
}
