/** Keys in Redis. All begin with the configured prefix. */
import type { RedisLink } from './redis-link.ts';

/** The BullMQ queue of a worker; ':' is BullMQ's own separator. */
export const workerQueue = (workerId: string): string => `overflow-${workerId}`;

export const keys = {
  /** BullMQ's own keys. */
  bull: (link: RedisLink): string => link.key('queues'),
  /** The input of an invocation at a worker. */
  input: (link: RedisLink, jobId: string): string => link.key('input', jobId),
  /** List of the answers for a host. */
  answers: (link: RedisLink, hostId: string): string => link.key('answers', hostId),
} as const;

/** Entries for a worker or host that is gone expire after this. */
export const leftoverMs = 120_000;

/** The data of an overflow job; its input is a separate value, as bytes. */
export interface OverflowJob {
  readonly revision: string;
  /** Id of the waiting host. */
  readonly host: string;
  /** Milliseconds since 1970 by Redis' clock. */
  readonly deadlineMs?: number;
  /** By the same clock, when its SLO wants the answer; undefined: its host does not say. */
  readonly dueMs?: number;
  readonly priority?: number;
}
