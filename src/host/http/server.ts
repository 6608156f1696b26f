/** The HTTP server: Node's own, with Hono as its listener, and with the same error form for failures below HTTP. */
import { once } from 'node:events';
import {
  createServer,
  STATUS_CODES,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createSecureServer, type Server as SecureServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { getRequestListener } from '@hono/node-server';
import type { CertificateFiles } from '../config/certificate-files.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import { doneWithin, formatDuration } from '../../tools/index.ts';
import { callRunner } from './accepted-calls.ts';
import { createApp } from './app.ts';
import { Bodies } from './body.ts';
import { backlog } from '../limits/connections.ts';
import { EventStreams, LogStreams } from './event-streams.ts';
import { findGoneClient, replyInTurn } from './half-closed.ts';
import { readBeforeEnding } from './idle-connections.ts';
import type { HostContext } from './host-context.ts';
import { Lists } from './lists.ts';
import { serveMembers } from './passed-calls.ts';
import { RequestTurns } from './request-turns.ts';

export interface HttpServerOptions extends Omit<HostContext, 'bodies' | 'events' | 'logs' | 'exchangeMeans'> {
  readonly tls?: CertificateFiles | undefined;
}

export type HttpServer = Awaited<ReturnType<typeof createHttpServer>>;

/** Idle connections are kept longer than load balancers keep them: the host never hangs up first. */
const keepAliveMs = 65_000;

/** When stopping, how long a connection may take to bring the first byte of a request that was on its way. */
const unusedMs = 100;

/** Starts the server. Rejects with the error of `listen`, such as EADDRINUSE. */
export async function createHttpServer(options: HttpServerOptions) {
  const { config, tls } = options;
  const context = contextOf(options);
  const server = serverOf(config, tls);
  const connections = new Set<Socket>();
  const turns = new RequestTurns();
  readBeforeEnding(server);
  context.connections.watch(server, 'http');
  server.on('connection', (socket: Socket) => {
    turns.accept(socket);
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
  });
  /** With TLS: those inside of the connections above. */
  const served = new Set<Socket>();
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    // A client that has sent FIN still gets its answers. One that sends it within its handshake has gone.
    socket.allowHalfOpen = true;
    findGoneClient(socket);
    served.add(socket);
    socket.once('close', () => served.delete(socket));
  });
  const listener = listenerOf(context, turns);
  for (const event of ['request', 'checkContinue', 'checkExpectation']) server.on(event, listener);
  // This host is no proxy.
  server.on('connect', (_incoming: IncomingMessage, socket: Socket) => {
    endWith(socket, new HostError('method-not-allowed', 'CONNECT is not for this host'));
  });
  server.on('clientError', (error, socket) => tellClient(context, error, socket));
  const { host } = config.listen;
  server.listen({ port: config.listen.port, host, backlog });
  await once(server, 'listening'); // Rejects with the error of `listen`.
  const { port } = server.address() as AddressInfo;
  /** A stream never ends by itself, and its rest is owed to no client. */
  const endStreams = (graceMs: number): void => {
    context.events.close();
    context.logs.close();
    context.fleet?.hangUp(graceMs);
  };
  return {
    server,
    /** Runs asynchronous calls like synchronous ones. */
    runCall: callRunner(context),
    /** Answers the other hosts of the fleet. */
    serveMembers: serveMembers(context),
    host,
    port,
    /** `http://127.0.0.1:8000`, an address that a client can use. */
    url: `${tls === undefined ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${port}`,
    /**
     * Ends the streams and waits for the replies in progress, up to `graceMs`. The host still listens: it tells load
     * balancers and callers that it drains. Resolves to false if some are left.
     */
    drain: async (graceMs: number) => {
      endStreams(graceMs);
      const replies = [...served].flatMap((socket) => replyInTurn(socket) ?? []);
      const closed = replies.map((reply) => new Promise((resolve) => reply.once('close', resolve)));
      return await doneWithin(graceMs, Promise.all(closed));
    },
    /**
     * Takes no new connections, lets the requests in progress finish within `graceMs`, then closes the rest. Resolves to
     * false if something had to be cut off.
     */
    close: async (graceMs: number) => {
      const endMs = performance.now() + graceMs;
      endStreams(graceMs);
      await acceptWaiting(server, endMs);
      // Browsers and balancers open connections ahead of need: Node does not count them as idle, but no client waits
      // there.
      const endUnused = (): void => {
        for (const socket of connections) if (socket.bytesRead === 0) socket.destroy();
      };
      const unused = setTimeout(() => void turnOfLoop().then(endUnused), unusedMs);
      const clean = await closeWithin(server, Math.max(0, endMs - performance.now()), connections);
      clearTimeout(unused);
      context.bodies.close();
      return clean;
    },
  };
}

/** Of one connection, pipelined: Node reads all of them with their bodies before the first is answered. */
const aheadMax = 16;

function contextOf(options: HttpServerOptions): HostContext {
  const { connections, inFlight } = options;
  const { bodyTimeoutMs } = options.config.limits;
  return {
    ...options,
    bodies: new Bodies({ timeoutMs: bodyTimeoutMs }),
    events: new EventStreams(options.views),
    logs: new LogStreams(options.functionLog),
    exchangeMeans: {
      lifecycle: options.lifecycle,
      stallMs: bodyTimeoutMs,
      inFlight,
      connections,
      lists: new Lists(inFlight),
    },
  };
}

function serverOf({ limits: { bodyTimeoutMs } }: HostConfig, tls: CertificateFiles | undefined): Server | SecureServer {
  const settings = {
    headersTimeout: bodyTimeoutMs,
    // Bodies have their own limits, which an upload passes as long as it moves.
    requestTimeout: 0,
    connectionsCheckingInterval: Math.min(1000, Math.max(10, bodyTimeoutMs / 4)),
    keepAliveTimeout: keepAliveMs,
    requireHostHeader: false,
  };
  const server = tls === undefined ? createServer(settings) : secureServer(tls, settings, bodyTimeoutMs);
  // HTTP, too, goes on after a client's FIN. Node does not document it.
  return Object.assign(server, { httpAllowHalfOpen: true });
}

/** Connections that are open when its certificate is renewed go on with the former one. */
function secureServer(tls: CertificateFiles, settings: ServerOptions, handshakeTimeout: number): SecureServer {
  const own = (): { cert: string; key: string } => ({ cert: tls.pems.cert, key: tls.pems.key });
  const server = createSecureServer({ ...settings, ...own(), handshakeTimeout });
  tls.onChange(() => server.setSecureContext(own()));
  return server;
}

function listenerOf(
  context: HostContext,
  turns: RequestTurns,
): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  const app = createApp(context);
  const handle = getRequestListener(app.fetch, {
    hostname: 'localhost',
    // The global Request and Response belong to the program, not to a library inside it.
    overrideGlobalObjects: false,
    // Exchange knows when the rest of a body is drained, and for how long.
    autoCleanupIncoming: false,
    errorHandler: unroutable,
  });
  /** Requests of a connection that are not answered yet. */
  const open = new WeakMap<Socket, number>();
  return (incoming, outgoing) => {
    const { socket } = incoming;
    const count = (more: number): number => {
      const requests = (open.get(socket) ?? 0) + more;
      open.set(socket, requests);
      return requests;
    };
    if (count(1) > aheadMax) {
      sentAhead(context, socket);
      return;
    }
    outgoing.once('close', () => count(-1));
    turns.begin(incoming, () => {
      if (outgoing.destroyed) return; // The client has gone meanwhile.
      (app.call(incoming, outgoing) ?? handle(incoming, outgoing)).catch((error: unknown) => {
        context.logger.error({ err: error }, 'a request ended without a reply');
        outgoing.destroy();
      });
    });
  };
}

/** A client has sent too many requests ahead: it gets no reply, since one would be taken for that to an earlier request. */
function sentAhead({ statistics, logger }: HostContext, socket: Socket): void {
  if (socket.destroyed) return;
  const why = `a connection had more than ${aheadMax} requests without a reply`;
  statistics.failed(new HostError('too-many-requests', why));
  logger.warn({ error: why }, 'connection failed');
  socket.destroy();
}

/** The error for a request that Node could not read. */
function tellClient({ config, statistics, logger }: HostContext, error: NodeJS.ErrnoException, socket: Duplex): void {
  // Browsers open connections ahead of need. One that was never used is no failed request, and a reply could cross with
  // the first request on it and be taken for its answer.
  const unused = 'bytesRead' in socket && socket.bytesRead === 0;
  const failure = unused ? undefined : clientFailure(error, config.limits.bodyTimeoutMs);
  if (failure === undefined || !socket.writable) {
    socket.destroy();
    return;
  }
  statistics.failed(failure);
  logger.warn({ code: failure.code, error: failure.message, status: failure.status }, 'connection failed');
  afterReply(socket, () => endWith(socket, failure));
}

/**
 * Connections that the system has made, and this process has not accepted, would be reset with the listener. There are at
 * most {@link backlog}, and Node accepts one in a turn of the event loop.
 */
async function acceptWaiting(server: Server | SecureServer, endMs: number): Promise<void> {
  let accepted = 0;
  const note = (): void => void accepted++;
  server.on('connection', note);
  for (let turn = 0; turn < backlog && performance.now() < endMs; turn++) {
    const before = accepted;
    await turnOfLoop();
    if (accepted === before) break;
  }
  server.off('connection', note);
}

/** After it the event loop has accepted and read what had come to the machine before. */
async function turnOfLoop(): Promise<void> {
  // The first ends the turn that has begun.
  await nextTurn();
  await nextTurn();
}

async function closeWithin(
  server: Server | SecureServer,
  graceMs: number,
  connections: Iterable<Socket>,
): Promise<boolean> {
  const closed = new Promise((resolve) => {
    server.close(resolve);
  });
  server.closeIdleConnections();
  const clean = await doneWithin(graceMs, closed);
  // Node's own list leaves out connections within their TLS handshake.
  if (!clean) for (const socket of connections) socket.destroy();
  await closed;
  return clean;
}

/** The adaptor could not make a URL of the request. */
function unroutable(error: unknown): Response {
  const reason = error instanceof Error ? error.message : String(error);
  const body = { error: `the request line or the Host header is malformed: ${reason}` };
  return Response.json(body, { status: 400, headers: { 'X-Turntable-Error': 'bad-request', Connection: 'close' } });
}

/** The error for a client whose request Node could not read; undefined if the client is gone. */
function clientFailure(error: NodeJS.ErrnoException, bodyTimeoutMs: number): HostError | undefined {
  switch (error.code) {
    case 'ECONNRESET':
    case 'EPIPE':
      return undefined;
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new HostError('body-timeout', `the headers did not arrive within ${formatDuration(bodyTimeoutMs)}`);
    case 'HPE_HEADER_OVERFLOW':
      return new HostError('headers-too-large', 'the headers are over the limit of 16384 bytes');
    case 'HPE_INVALID_EOF_STATE':
      return new HostError('bad-request', 'the client ended the connection within a request');
    case 'HPE_PAUSED_H2_UPGRADE':
      return new HostError('bad-request', 'this port takes HTTP/1.1, and HTTP/2 came; gRPC has a port of its own');
    default:
      return new HostError('bad-request', `the request is not HTTP: ${error.message.replace(/^Parse Error: /, '')}`);
  }
}

/** Waits for the reply to a whole request before the unreadable one, so that this reply is not taken for its answer. */
function afterReply(socket: Duplex, work: () => void): void {
  const reply = replyInTurn(socket);
  if (reply === undefined) work();
  else if (reply.req.complete) reply.once('close', work);
  else if (reply.headersSent) socket.destroy();
  else work();
}

function endWith(socket: Duplex, failure: HostError): void {
  if (!socket.writable) return;
  const body = `${JSON.stringify({ error: failure.message })}\n`;
  socket.end(
    [
      `HTTP/1.1 ${failure.status} ${STATUS_CODES[failure.status] ?? ''}`,
      'Content-Type: application/json',
      `Content-Length: ${Buffer.byteLength(body)}`,
      `X-Turntable-Error: ${failure.code}`,
      ...(failure.retryAfterS === undefined ? [] : [`Retry-After: ${failure.retryAfterS}`]),
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
  );
}
