/** A member for tests: a host that is in no fleet, and tells workers of functions. */
import { Membership, type MemberReport } from '../../src/fleet/index.ts';
import type { FunctionManifest } from '../../src/queue/index.ts';
import type { RedisLink } from '../../src/queue/redis.ts';
import { silentLog } from './silent-log.ts';

export const testReport: MemberReport = {
  kind: 'host',
  title: 'test',
  hostVersion: '',
  draining: false,
  cores: 1,
  gpus: 0,
  inFlight: 0,
  waiting: 0,
  backlogMs: 0,
  functions: 1,
};

export function memberWith(link: RedisLink, manifests: readonly FunctionManifest[]): Membership {
  return new Membership({
    link,
    report: () => testReport,
    offers: () => [],
    manifests: {
      current: () => manifests.map((each) => [each.revision, each]),
      isNews: (before) => before === undefined,
    },
    log: silentLog,
  });
}
