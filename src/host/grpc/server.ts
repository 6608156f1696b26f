/** The gRPC server: inference, health and reflection on one port. */
import { logVerbosity, ServerCredentials, setLogVerbosity } from '@grpc/grpc-js';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { HealthImplementation } from 'grpc-health-check';
import { doneWithin } from '../../tools/index.ts';
import type { CertificateFiles } from '../config/certificate-files.ts';
import type { RouteScope } from '../access/access.ts';
import { backlog } from '../limits/connections.ts';
import { Watches } from '../limits/watches.ts';
import { scopeOfHandler, type GrpcContext } from './call.ts';
import { countStreams, guard, ParsingServer, streamBytes } from './guard.ts';
import { readInferRequest } from './infer-wire.ts';
import { inferenceService } from './inference-service.ts';
import { loadProtos, serviceOf } from './protos.ts';
import { addReflection } from './reflection.ts';

export interface GrpcServer {
  readonly port: number;
  /** Health checks answer NOT_SERVING from now on; calls still run. */
  drain(): void;
  /** Waits up to `graceMs` for calls in progress, then cuts off the rest. Resolves to false if calls were cut off. */
  close(graceMs: number): Promise<boolean>;
}

/**
 * Calls at once on one connection; clients wait with more. All that one connection brings comes in one turn of the event
 * loop, refused streams as well, so that many connections may bring as many as the budget has room for.
 */
const streamsOf = (inFlightBytesMax: number): number =>
  Math.min(1000, Math.max(100, Math.floor(inFlightBytesMax / (32 * streamBytes))));

export interface GrpcListen {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** Without it connections are not encrypted. */
  readonly tls: CertificateFiles | undefined;
}

/** @throws Error with the code of `listen`, such as EADDRINUSE */
export async function createGrpcServer(context: GrpcContext, { host, port, tls }: GrpcListen): Promise<GrpcServer> {
  // Failures come back as errors; the library would print them to standard error as well.
  setLogVerbosity(logVerbosity.NONE);
  const protos = loadProtos();
  const { bodyBytesMax, bodyTimeoutMs, inFlightBytesMax } = context.config.limits;
  const watches = new Watches(bodyTimeoutMs);
  const scopes = new Map<string, RouteScope>();
  const server = new ParsingServer({
    interceptors: [guard(context, { scopeOf: (path) => scopes.get(path) ?? 'open', watches })],
    'grpc.max_receive_message_length': bodyBytesMax,
    'grpc.max_concurrent_streams': streamsOf(inFlightBytesMax),
    // In megabytes of Node: what HTTP/2 itself keeps of a connection, a quarter of the budget and one message at least.
    'grpc-node.max_session_memory': Math.ceil(Math.max(inFlightBytesMax / 4, 2 * bodyBytesMax) / 1e6),
    'grpc.max_send_message_length': -1,
    // The library's statistics, which no method of this server returns.
    'grpc.enable_channelz': 0,
  });
  countStreams(server, context);
  const { service } = serviceOf(protos, 'inference', 'GRPCInferenceService');
  const handlers = inferenceService(context);
  for (const [name, handler] of Object.entries(handlers)) scopes.set(service[name]!.path, scopeOfHandler(handler));
  const own = ['ModelInfer', 'ModelStreamInfer'].map((name) => [
    name,
    { ...service[name]!, requestDeserialize: readInferRequest },
  ]);
  server.addService({ ...service, ...Object.fromEntries(own) }, handlers);
  const health = new HealthImplementation({ '': 'SERVING', 'inference.GRPCInferenceService': 'SERVING' });
  health.addToServer(server);
  addReflection(server, protos);
  let injector = server.createConnectionInjector(credentialsOf(tls));
  tls?.onChange(() => (injector = server.createConnectionInjector(credentialsOf(tls))));
  const listener = createServer({ noDelay: true });
  context.connections.watch(listener, 'grpc');
  const sockets = new Set<Socket>();
  listener.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    if (!socket.destroyed) injector.injectConnection(socket);
  });
  listener.listen({ host, port, backlog });
  try {
    await once(listener, 'listening');
  } catch (error) {
    watches.close();
    server.forceShutdown();
    // The port tells it apart from HTTP's.
    throw Object.assign(error as Error, { grpcPort: port });
  }
  return {
    port: (listener.address() as AddressInfo).port,
    drain: () => {
      health.setStatus('', 'NOT_SERVING');
      health.setStatus('inference.GRPCInferenceService', 'NOT_SERVING');
    },
    close: async (graceMs) => {
      listener.close();
      const closed = new Promise((resolve) => {
        server.tryShutdown(resolve);
      });
      const clean = await doneWithin(graceMs, closed);
      if (!clean) server.forceShutdown();
      for (const socket of sockets) socket.destroy();
      watches.close();
      return clean;
    },
  };
}

function credentialsOf(tls: CertificateFiles | undefined): ServerCredentials {
  if (tls === undefined) return ServerCredentials.createInsecure();
  const [cert, key] = [tls.pems.cert, tls.pems.key].map((pem) => Buffer.from(pem));
  return ServerCredentials.createSsl(null, [{ cert_chain: cert!, private_key: key! }]);
}
