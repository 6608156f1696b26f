/** What the guard tells the handlers of a call that it has let in. */
import type { Metadata } from '@grpc/grpc-js';
import { HostError } from '../errors.ts';
import type { SpentBuffers } from '../../tensor/index.ts';
import type { HeldBytes } from '../limits/in-flight.ts';

export interface GuardedCall {
  /** Name of the API key that it came with. */
  readonly keyName: string | undefined;
  readonly held: HeldBytes;
  /** Of a call that is no stream: freed once the system has taken the reply. */
  readonly spent: SpentBuffers;
  /** Bytes held for a message of a stream, to give back once it is answered. */
  readonly bytesOf: WeakMap<object, number>;
}

/** By the metadata, the one object that interceptors and handlers share. */
const calls = new WeakMap<Metadata, GuardedCall>();

export function letIn(metadata: Metadata, call: GuardedCall): void {
  calls.set(metadata, call);
}

export function guardedCall({ metadata }: { readonly metadata: Metadata }): GuardedCall {
  const found = calls.get(metadata);
  if (found === undefined) throw new HostError('internal', 'a call has passed no guard');
  return found;
}
