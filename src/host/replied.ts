/** The end of a request, over HTTP and gRPC alike: counted in the ledger, and logged if it failed. */
import type { Logger } from 'pino';
import type { HostError } from './errors.ts';
import type { Replied, Statistics } from './records/statistics.ts';
import type { ModelStore } from './types.ts';

interface Ledgers {
  readonly statistics: Statistics;
  readonly store: Pick<ModelStore, 'find'>;
  readonly logger: Logger;
}

/** @param fields what the log says of the request */
export function accountReply({ statistics, store, logger }: Ledgers, replied: Replied, fields: object): void {
  const { called, failure, durationMs } = replied;
  statistics.replied(replied, called !== undefined && store.find(called.name, called.version) !== undefined);
  if (failure === undefined) return;
  logFailure(logger, failure, { ...fields, durationMs: Math.round(durationMs * 1000) / 1000 }, 'request failed');
}

/** What callers cause is a warning, as is a host that has no room or time. */
export function logFailure(logger: Logger, failure: HostError, fields: object, message: string): void {
  const { code, status } = failure;
  const all = { ...fields, status, code, error: failure.message };
  if (code === 'internal') logger.error({ ...all, err: failure.cause }, message);
  else if (status >= 500 && status !== 503) logger.error(all, message);
  else logger.warn(all, message);
}
