/** The host's gRPC side; loaded only if the host listens for gRPC. */
export type { GrpcContext } from './call.ts';
export { createGrpcServer, type GrpcListen, type GrpcServer } from './server.ts';
export { loadProtos, serviceOf } from './protos.ts';
