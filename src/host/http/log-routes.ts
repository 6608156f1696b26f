/** `GET /functions/{name}/log`: a function's log; with `follow=true` also new lines. */
import { HostError } from '../errors.ts';
import { lineOf } from './event-streams.ts';
import type { Exchange } from './exchange.ts';
import { versionAsked, wholeAsked, type HostContext } from './host-context.ts';

const linesDefault = 100;

/** `GET /functions/{name}/log[?lines=100][&follow=true]` */
export function functionLog(context: HostContext, exchange: Exchange): void {
  const { name } = versionAsked(context, exchange);
  const query = exchange.query();
  const lines = wholeAsked(exchange, 'lines', linesDefault);
  const follow = query.get('follow') ?? 'false';
  if (follow !== 'true' && follow !== 'false') {
    throw new HostError('bad-request', `follow is '${follow.slice(0, 40)}', but must be true or false`);
  }
  if (follow === 'false' || exchange.method === 'HEAD') {
    exchange.json(200, { name, lines: context.functionLog.of(name, lines).map(lineOf) });
    return;
  }
  if (context.lifecycle.phase === 'draining') throw new HostError('draining', 'the host is shutting down');
  context.logs.follow(exchange, name, lines);
}
