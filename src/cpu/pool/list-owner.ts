import type { Holder, Replica, RunOutcome } from '../instance/index.ts';
import type { CpuError, GiveUpCause, PoolLimits } from '../types.ts';
import type { FunctionFacts, Conduct } from './facts.ts';
import type { HandOverRule } from './hand-over-rule.ts';
import type { LatencyBook } from './latency.ts';
import type { TicketQueue } from './queue.ts';
import type { PoolResources } from './resources.ts';
import type { Ticket } from './ticket.ts';

/** What a list knows of its pool, and tells it. */
export interface ListOwner {
  /** As they are now: registering a function again replaces them. */
  readonly pool: PoolHolder;
  readonly queue: TicketQueue;
  readonly latency: LatencyBook;
  readonly rule: HandOverRule;
  readonly conduct: Conduct;
  readonly facts: FunctionFacts;
  readonly resources: PoolResources;
  /** Whether all who wait need the handler alone. */
  handlerSuffices(): boolean;
  /** An instance is ready; `startMs`: the instant at which it was taken. */
  ready(startMs: number, holdsModel: boolean): void;
  /** So many more calls are with instances. */
  handedOver(calls: number): void;
  finished(replica: Replica, tickets: readonly Ticket[], outcome: RunOutcome): void;
  /** One that was ready is no more. */
  ended(cause: GiveUpCause, ageMs: number, reason: string): void;
  /** No instance of the list can serve, and why. */
  cannotServe(error: CpuError): void;
  /** One on demand ended by itself, and the pool is in use. */
  replace(holdsModel: boolean): void;
  /** An instance is gone, or could not be started. */
  settled(): void;
}

export interface PoolHolder extends Holder {
  readonly limits: PoolLimits;
  /** Over all its lists. */
  readonly instances: number;
}
