/** The interface of asynchronous calls: acceptance, state, reply. Types only. */
import type { HandlerRequest } from '../cpu/index.ts';

/** A call as it was accepted. */
export interface AcceptedCall extends HandlerRequest {
  /** Chosen by the client, or generated; never used twice. */
  readonly id: string;
  readonly functionName: string;
  /** Undefined: the current version at the time of the run. */
  readonly version: string | undefined;
  /** Where the reply is sent when it is ready. */
  readonly callbackUrl: string | undefined;
  /** Milliseconds since 1970. */
  readonly acceptedAtMs: number;
}

/** The reply that a synchronous call would have got. */
export interface CallReply {
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array;
}

/** An error as a host replies with it. */
export const errorReply = (status: number, code: string, error: string): CallReply => ({
  status,
  headers: [
    ['Content-Type', 'application/json'],
    ['X-Turntable-Error', code],
  ],
  body: Buffer.from(`${JSON.stringify({ error })}\n`),
});

/** What is known of a call besides its body. */
export interface CallSummary extends Pick<AcceptedCall, 'id' | 'functionName' | 'version' | 'acceptedAtMs'> {
  readonly callback: CallbackState | undefined;
}

export type CallbackState =
  | { readonly state: 'pending'; readonly attempts: number; readonly lastError?: string }
  | { readonly state: 'delivered'; readonly attempts: number }
  | { readonly state: 'given-up'; readonly attempts: number; readonly lastError?: string };

export type CallStatus =
  | { readonly state: 'waiting' | 'running'; readonly call: CallSummary }
  | { readonly state: 'finished'; readonly call: CallSummary; readonly finishedAtMs: number; readonly reply: CallReply }
  | { readonly state: 'cancelled'; readonly call: CallSummary; readonly finishedAtMs: number };

/** One line of a list of calls, with the reply's status if there is one. */
export interface CallListing extends Pick<AcceptedCall, 'id' | 'functionName' | 'acceptedAtMs'> {
  readonly state: CallStatus['state'];
  readonly status: number | undefined;
}

export type AcceptOutcome =
  | 'accepted'
  /** The same call with the same id was accepted before: it is not run again. */
  | 'known'
  /** Another call has this id. */
  | 'conflict';

export type CancelOutcome = 'cancelled' | 'finished' | 'unknown';

/** Runs a call. Throws {@link CallAgain} where another try can help. */
export type CallRunner = (call: AcceptedCall, signal: AbortSignal) => Promise<CallReply>;

/** The call could not run now; `reply` is its reply if no later try does better. */
export class CallAgain extends Error {
  override readonly name = 'CallAgain';
  readonly reply: CallReply;
  constructor(message: string, reply: CallReply) {
    super(message);
    this.reply = reply;
  }
}
