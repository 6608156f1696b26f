/** `/api/replays`: reading reports needs no key; starting and removing runs is management. */
import { HostError } from '../errors.ts';
import { arrivalKinds, parseReplayRequest, type ReplayRuns } from '../replays.ts';
import type { Exchange } from './exchange.ts';
import type { HostContext } from './host-context.ts';
import { parseJsonObject } from '../infer/json-body.ts';

const requestBytesMax = 16 * 1024;

/** `GET /api/replays`: what can be chosen, and the runs, the newest first. */
export async function listReplays(context: HostContext): Promise<object> {
  const replays = replaysOf(context);
  return { arrivals: arrivalKinds, traces: await replays.traces(), runs: await replays.list() };
}

/** `POST /api/replays`: 202 with the run. */
export async function startReplay(context: HostContext, exchange: Exchange): Promise<void> {
  const body = parseJsonObject(await context.bodies.read(exchange, requestBytesMax), 'the body');
  const run = await replaysOf(context).start(parseReplayRequest(body));
  exchange.json(202, run, ['Location', `/api/replays/${run.id}`]);
}

/** `GET /api/replays/{id}`: the report. */
export const showReplay = async (context: HostContext, exchange: Exchange): Promise<object> =>
  await replaysOf(context).report(exchange.pathParam('id'));

/** `DELETE /api/replays/{id}`: also ends one that waits or runs. */
export async function removeReplay(context: HostContext, exchange: Exchange): Promise<void> {
  await replaysOf(context).remove(exchange.pathParam('id'));
  exchange.send(204, [], []);
}

function replaysOf({ replays }: HostContext): ReplayRuns {
  if (replays === undefined) throw new HostError('unknown-path', 'this host was started without the means to replay');
  return replays;
}
