/** Asynchronous calls: accepted with an id, queried, cancelled, listed. */
import { randomUUID } from 'node:crypto';
import { CallbackTargets, clientId, ownedId, redisWorks } from '../../queue/index.ts';
import type { AcceptedCall, AsyncCalls, CallListing, CallStatus, CallSummary } from '../../queue/index.ts';
import { admitted, checkRoom } from '../access/access.ts';
import { HostError } from '../errors.ts';
import { plainHeaders, sloAsked, type Exchange, type HeaderList } from './exchange.ts';
import { versionAsked, wholeAsked, type HostContext } from './host-context.ts';
import { shown } from '../infer/model-spec.ts';
import { calledAs } from '../../tools/index.ts';

/** Ids become keys in Redis and parts of paths. */
const idForm = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;
const listedMax = 1000;

/** Whether an asynchronous call could be accepted now. */
export function acceptsCalls({ queueing }: HostContext): boolean {
  return queueing !== undefined && redisWorks(queueing.link.health);
}

/** `POST /async-function/{name}[/versions/{version}][/{path}]`: an unknown function is reported before a missing queue. */
export async function callLater(context: HostContext, exchange: Exchange): Promise<void> {
  const { name } = exchange.begin(versionAsked(context, exchange), context.statistics);
  checkRoom(context, name);
  const calls = callsOf(context);
  sloAsked(exchange.header('x-turntable-slo')); // Reported now, while the client waits for the reply.
  const callbackUrl = callbackAsked(context, exchange);
  const id = idAsked(exchange);
  const body = await context.bodies.read(exchange, context.config.limits.bodyBytesMax);
  await admitted(context, name, async () => {
    // Looked up again after the body arrived: it may have been removed meanwhile.
    versionAsked(context, exchange);
    const call: AcceptedCall = {
      id: ownedId(id, exchange.keyName),
      functionName: name,
      version: exchange.param('version'),
      method: exchange.method,
      // The function sees the path of a synchronous call.
      url: exchange.url.replace(/^\/async-function\//, '/function/'),
      headers: plainHeaders(exchange),
      body,
      callbackUrl,
      acceptedAtMs: Date.now(),
    };
    const outcome = await calls.accept(call);
    if (outcome === 'conflict') {
      throw new HostError('call-id-in-use', `another asynchronous call has the X-Call-Id '${shown(id)}'`);
    }
    exchange.callId = id;
    const headers: HeaderList = ['Location', pathOf(id)];
    if (exchange.prefersAsync) headers.push('Preference-Applied', 'respond-async');
    exchange.json(202, { id, status: 'accepted', function: name, url: pathOf(id) }, headers);
  });
}

/** `GET /async-function/{call-id}`: the reply once it is there, as for a synchronous call; 202 before. */
export async function asynchronousResult(context: HostContext, exchange: Exchange): Promise<void> {
  const found = await statusAsked(context, exchange);
  exchange.callId = clientId(found.call.id);
  const headers: HeaderList = ['X-Call-Status', found.state];
  if (found.state !== 'finished') {
    if (found.state !== 'cancelled') headers.push('Retry-After', 1);
    exchange.json(found.state === 'cancelled' ? 200 : 202, statusView(found), headers);
    return;
  }
  for (const [name, value] of found.reply.headers) headers.push(name, value);
  headers.push('X-Function-Name', found.call.functionName, 'X-Function-Status', found.reply.status);
  exchange.send(found.reply.status, headers, found.reply.body.byteLength === 0 ? [] : [found.reply.body]);
}

/** `GET /async-function/{call-id}/status`: how the call stands, always as JSON. */
export async function asynchronousStatus(context: HostContext, exchange: Exchange): Promise<object> {
  const found = await statusAsked(context, exchange);
  exchange.callId = clientId(found.call.id);
  return statusView(found);
}

/** `DELETE /async-function/{call-id}` */
export async function cancelCall(context: HostContext, exchange: Exchange): Promise<object> {
  const id = idInPath(exchange);
  const outcome = await callsOf(context).cancel(ownedId(id, exchange.keyName));
  switch (outcome) {
    case 'cancelled':
      exchange.callId = id;
      return { id, status: 'cancelled' };
    case 'finished':
      throw new HostError('call-finished', `the call '${id}' has ended already and cannot be cancelled`);
    case 'unknown':
      throw unknownCall(id);
  }
}

/** `GET /async-function`: the latest calls. Those of all keys, so only who manages the host may see it. */
export async function listCalls(context: HostContext, exchange: Exchange): Promise<object> {
  const limit = wholeAsked(exchange, 'limit', 100, 1, listedMax);
  const calls = callsOf(context);
  const [listed, counts] = await Promise.all([calls.list(limit), calls.waiting()]);
  return { ...counts, calls: listed.map(listingView) };
}

function callsOf({ queueing, config }: HostContext): AsyncCalls {
  if (queueing !== undefined) return queueing.calls;
  const port = config.listen.port === 0 ? '' : ` --port ${config.listen.port}`;
  throw new HostError(
    'no-queue',
    `asynchronous calls need Redis, and this host runs without one: start redis-server, then ${calledAs()} serve${port} ` +
      '--redis redis://127.0.0.1:6379',
  );
}

async function statusAsked(context: HostContext, exchange: Exchange): Promise<CallStatus> {
  const calls = callsOf(context);
  const id = idInPath(exchange);
  const found = await calls.status(ownedId(id, exchange.keyName));
  if (found === undefined) throw unknownCall(id);
  return found;
}

function statusView(found: CallStatus): object {
  const { functionName, version, acceptedAtMs, callback } = found.call;
  const id = clientId(found.call.id);
  return {
    id,
    status: found.state,
    function: functionName,
    version,
    accepted_at: new Date(acceptedAtMs).toISOString(),
    ...('finishedAtMs' in found ? { finished_at: new Date(found.finishedAtMs).toISOString() } : undefined),
    ...(found.state === 'finished' ? { function_status: found.reply.status } : undefined),
    ...callbackView(callback),
    url: pathOf(id),
  };
}

function listingView({ id: owned, functionName, state, acceptedAtMs, status }: CallListing): object {
  const id = clientId(owned);
  const accepted = { accepted_at: new Date(acceptedAtMs).toISOString() };
  return { id, function: functionName, status: state, function_status: status, ...accepted, url: pathOf(id) };
}

function callbackView(callback: CallSummary['callback']): object | undefined {
  if (callback === undefined) return undefined;
  const { state, attempts } = callback;
  const error = 'lastError' in callback ? { last_error: callback.lastError } : {};
  return { callback: { state, attempts, ...error } };
}

function callbackAsked({ config }: HostContext, exchange: Exchange): string | undefined {
  const header = exchange.header('x-callback-url');
  if (header === undefined) return undefined;
  const checked = new CallbackTargets(config.async.callbackAllow).check(header);
  if ('url' in checked) return checked.url;
  throw new HostError('bad-request', `the header X-Callback-Url is ${checked.reason}`);
}

/** The client's own id, which makes a call that is sent twice run once; else a new one. */
function idAsked(exchange: Exchange): string {
  const header = exchange.header('x-call-id');
  if (header === undefined) return randomUUID();
  if (!idForm.test(header)) {
    const allowed = 'at most 128 letters, digits, dots, dashes and underscores';
    throw new HostError('bad-request', `the header X-Call-Id of an asynchronous call is not made of ${allowed}`);
  }
  return header;
}

function idInPath(exchange: Exchange): string {
  const id = exchange.pathParam('id');
  if (!idForm.test(id)) throw unknownCall(id);
  return id;
}

function unknownCall(id: string): HostError {
  return new HostError('unknown-call', `there is no asynchronous call '${shown(id)}', or its reply is kept no longer`);
}

function pathOf(id: string): string {
  return `/async-function/${id}`;
}
