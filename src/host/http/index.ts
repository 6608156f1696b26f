/** The host's HTTP side. */
export type { Lifecycle } from './lifecycle.ts';
export { createHttpServer, type HttpServer, type HttpServerOptions } from './server.ts';
