/** Routes for workers, and the list of workers. */
import { refuseWhileDraining } from '../access/access.ts';
import { HostError } from '../errors.ts';
import type { Exchange, HeaderList } from './exchange.ts';
import { digestAsked } from './function-routes.ts';
import type { HostContext } from './host-context.ts';

/** `GET /v2/workers`: who takes overflow, what they hold, and what they promise. Reading it is never a use. */
export function listWorkers({ queueing }: HostContext): object {
  const health = queueing?.link.health;
  const { overflow } = queueing ?? {};
  const state = overflow?.state();
  const keyOf = new Map(queueing?.files.manifests().map(({ revision, key }) => [revision, key]));
  const workers = overflow?.workers() ?? [];
  return {
    redis:
      health === undefined
        ? { status: 'off' }
        : {
            status: health.status,
            since: new Date(health.sinceMs).toISOString(),
            ...(health.status === 'up' ? {} : { reason: health.reason }),
          },
    outstanding: state?.outstanding ?? 0,
    /** Of all hosts. Workers are scaled by it. */
    outstanding_at_workers: workers.reduce((sum, { inFlight }) => sum + inFlight, 0),
    moved_elsewhere: state?.movedElsewhere ?? 0,
    taken_back: state?.takenBack ?? 0,
    double_runs: state?.doubleRuns ?? 0,
    late_answers: state?.lateAnswers ?? 0,
    workers: workers.map((worker) => ({
      id: worker.name,
      name: worker.title,
      cores: worker.cores,
      started_at: new Date(worker.startedAtMs).toISOString(),
      draining: worker.draining,
      outstanding: worker.inFlight,
      backlog_ms: rounded(worker.backlogMs),
      cache_bytes: worker.cacheBytes ?? 0,
      cache_bytes_max: worker.cacheBytesMax ?? 0,
      answered: state?.answered[worker.title] ?? 0,
      functions: [...(overflow?.offersOf(worker) ?? [])].flatMap(([revision, offer]) => {
        const key = keyOf.get(revision);
        if (key === undefined) return []; // Another host's.
        const { ms, lanes = 1, callMs, isHeld } = offer;
        const [predicted, call] = [ms, callMs].map((each) => (each === undefined ? null : rounded(each)));
        return [{ function: key, lanes, predicted_ms: predicted, call_ms: call, held: isHeld }];
      }),
    })),
  };
}

/** `GET /blobs/sha256:{hex}`: a published file. */
export async function getBlob(context: HostContext, exchange: Exchange): Promise<void> {
  refuseWhileDraining(context);
  const sha256 = digestAsked(exchange);
  await using content = await context.store.openContent(sha256);
  if (content === undefined) {
    throw new HostError('unknown-blob', 'no function here has a sound file with this sha256');
  }
  const { bytes } = content;
  const type: HeaderList = ['Content-Type', 'application/octet-stream', 'Accept-Ranges', 'bytes'];
  type.push('ETag', `"sha256:${sha256}"`);
  const range = rangeAsked(exchange.header('range'), bytes);
  if (range === undefined) return await exchange.sendContent(200, type, content, 0, bytes);
  const { start, end } = range;
  type.push('Content-Range', `bytes ${start}-${end}/${bytes}`);
  await exchange.sendContent(206, type, content, start, end - start + 1);
}

/** One range of bytes, as in RFC 9110; undefined: the whole file, also for other kinds of ranges. */
function rangeAsked(header: string | undefined, bytes: number): { start: number; end: number } | undefined {
  const [, from = '', to = ''] = /^bytes=(\d{1,15})-(\d{0,15})$/.exec(header ?? '') ?? [];
  const start = Number(from);
  const end = Math.min(to === '' ? Infinity : Number(to), bytes - 1);
  return from === '' || start > end ? undefined : { start, end };
}

function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
