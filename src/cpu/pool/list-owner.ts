import type { Replica, RunOutcome } from '../instance/index.ts';
import type { LatencyBook, Pace } from '../../schedule/index.ts';
import type { CpuError, GiveUpCause, InstanceSpec, PoolLimits, Stopped } from '../types.ts';
import type { Conduct } from './conduct.ts';
import type { FunctionFacts } from './facts.ts';
import type { PoolResources } from './resources.ts';
import type { Ticket } from './ticket.ts';
import type { WaitingCalls } from './waiting-calls.ts';

/** The pool, as its list sees it. Registering a function again replaces its specification and limits. */
export interface ListOwner {
  readonly spec: InstanceSpec;
  readonly limits: PoolLimits;
  /** Calls wait, and none of its instances is ready. */
  readonly needsFirst: boolean;
  readonly waiting: WaitingCalls;
  readonly latency: LatencyBook;
  readonly pace: Pace;
  readonly conduct: Conduct;
  readonly facts: FunctionFacts;
  readonly resources: PoolResources;
  /** Sends as many calls as possible. */
  pump(): void;
  /** Whether the models of all waiting calls run elsewhere: loading the model here too would cost time and memory. */
  handlerSuffices(): boolean;
  /** An instance is ready; `startMs`: the instant at which it was taken. For the waiting calls this was a load. */
  started(startMs: number, holdsModel: boolean): void;
  /** So many more calls were sent to instances. */
  handedOver(calls: number): void;
  finished(replica: Replica, tickets: readonly Ticket[], outcome: RunOutcome): void;
  /** The function has killed its processes, and gets no other for now. */
  stopped(stopped: Stopped): void;
  /** An instance that was ready has ended. */
  ended(cause: GiveUpCause, ageMs: number, reason: string): void;
  /** No instance of the list can serve, and why. Fails the waiting calls. */
  cannotServe(error: CpuError): void;
  /** An on-demand instance ended by itself while the pool is in use. */
  replace(holdsModel: boolean): void;
  /** An instance is gone, or could not be started. */
  settled(): void;
}
