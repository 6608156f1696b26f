/** Keys in Redis. All begin with the configured prefix. */
import type { RedisLink } from './redis-link.ts';
import type { WorkerState } from './types.ts';

/** The BullMQ queue of a worker; ':' is BullMQ's own separator. */
export const workerQueue = (workerId: string): string => `overflow-${workerId}`;

export const keys = {
  /** BullMQ's own keys. */
  bull: (link: RedisLink): string => link.key('queues'),
  /** Set of the ids of workers. */
  workers: (link: RedisLink): string => link.key('workers'),
  /** A worker's report, for as long as it lives. */
  worker: (link: RedisLink, id: string): string => link.key('worker', id),
  /** Set of the ids of hosts. */
  hosts: (link: RedisLink): string => link.key('hosts'),
  /** A host's heartbeat, for as long as it lives. */
  host: (link: RedisLink, id: string): string => link.key('host', id),
  /** Hash of a host's manifests by revision. */
  functions: (link: RedisLink, hostId: string): string => link.key('functions', hostId),
  /** The input of an invocation at a worker. */
  input: (link: RedisLink, jobId: string): string => link.key('input', jobId),
  /** List of the answers for a host. */
  answers: (link: RedisLink, hostId: string): string => link.key('answers', hostId),
} as const;

/** A worker or host that has been silent for this long is gone. */
export const heartbeatMs = 500;
export const goneAfterMs = 2500;
/** Entries for a worker or host that is gone expire after this. */
export const leftoverMs = 120_000;

/** A worker's heartbeat. */
export interface WorkerBeat extends WorkerState {
  /** Number of the heartbeat. */
  readonly beat: number;
}

/** A host's heartbeat. */
export interface HostBeat {
  /** Changes with the manifests. */
  readonly generation: number;
}

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
