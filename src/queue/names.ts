/** Where things stand in Redis. All keys begin with the configured prefix. */
import type { RedisLink } from './redis-link.ts';
import type { WorkerState } from './types.ts';

/** BullMQ's queue of what a worker was handed; ':' is BullMQ's own separator. */
export const workerQueue = (workerId: string): string => `overflow-${workerId}`;

export const keys = {
  /** BullMQ's own keys. */
  bull: (link: RedisLink): string => link.key('queues'),
  /** Set of the ids of workers. */
  workers: (link: RedisLink): string => link.key('workers'),
  /** What a worker says of itself, for as long as it lives. */
  worker: (link: RedisLink, id: string): string => link.key('worker', id),
  /** Set of the ids of hosts. */
  hosts: (link: RedisLink): string => link.key('hosts'),
  /** Where a host is, for as long as it lives. */
  host: (link: RedisLink, id: string): string => link.key('host', id),
  /** Hash of a host's manifests by revision. */
  functions: (link: RedisLink, hostId: string): string => link.key('functions', hostId),
  /** The input of an invocation that was handed over. */
  input: (link: RedisLink, jobId: string): string => link.key('input', jobId),
  /** List of the answers for a host. */
  answers: (link: RedisLink, hostId: string): string => link.key('answers', hostId),
} as const;

/** A worker or host that has not been heard of for this long is gone. */
export const heartbeatMs = 500;
export const goneAfterMs = 2500;
/** What waits in Redis for somebody who is gone goes away by itself. */
export const leftoverMs = 120_000;

/** What a worker writes about itself. */
export interface WorkerBeat extends WorkerState {
  /** Counts what it has written. */
  readonly beat: number;
}

/** What a host writes about itself. */
export interface HostBeat {
  readonly url: string;
  /** Changes with the manifests. */
  readonly generation: number;
}

/** The data of an overflow job; its input stands beside it as bytes. */
export interface OverflowJob {
  readonly revision: string;
  /** Id of the host that waits. */
  readonly host: string;
  /** Milliseconds since 1970 by Redis' clock. */
  readonly deadlineMs?: number;
  readonly priority?: number;
}
