/** The description of a path that the host serves. */
import type { RouteScope } from '../access/access.ts';
import type { Exchange } from './exchange.ts';
import type { HostContext } from './host-context.ts';
import type { ReplyName } from './openapi-schemas.ts';

/** What it gives back is the reply, as JSON with 200; nothing: it has replied itself. */
export type RouteHandler = (context: HostContext, exchange: Exchange) => object | void | Promise<object | void>;

export interface Route {
  /** GET includes HEAD. */
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** In Hono's form. */
  readonly path: string;
  readonly handler: RouteHandler;
  /** The scope that an API key needs. */
  readonly scope: RouteScope;
  /** Its description for /openapi.json. */
  readonly about: string;
  /** Its reply with 200 (201, 202); absent if that is no JSON, or only for the dashboard. */
  readonly reply?: ReplyName;
}
