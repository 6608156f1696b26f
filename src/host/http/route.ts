/** What the host knows of a path that it serves. */
import type { RouteScope } from '../access.ts';
import type { Exchange } from './exchange.ts';
import type { HostContext } from './host-context.ts';
import type { ReplyName } from './openapi-schemas.ts';

/** What it gives back is the reply, as JSON with 200; nothing: it has replied itself. */
export type RouteHandler = (context: HostContext, exchange: Exchange) => object | void | Promise<object | void>;

export interface Route {
  /** GET stands for HEAD as well. */
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** In Hono's form. */
  readonly path: string;
  readonly handler: RouteHandler;
  /** What an API key must allow. */
  readonly scope: RouteScope;
  /** What it does, for /openapi.json. */
  readonly about: string;
  /** What it answers with 200 (201, 202); absent where that is no JSON, or the dashboard's own. */
  readonly reply?: ReplyName;
}
