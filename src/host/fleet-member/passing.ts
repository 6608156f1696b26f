/** Sends a call to another host and reads its answer, as frames. */
import type { Asked, Fleet, Member } from '../../fleet/index.ts';
import type { PoolInput, PoolResult } from '../../cpu/index.ts';
import {
  inputMessage,
  inputOf,
  resultMessage,
  resultOf,
  type InputHeader,
  type ResultHeader,
} from '../../queue/index.ts';
import type { Message } from '../../tensor/index.ts';
import { HostError, toHostError } from '../errors.ts';
import { placementText, type Ran } from '../calls/placement.ts';
import type { FunctionVersion } from '../types.ts';

/** What a passed call carries beside its input. */
export interface PassedTerms {
  readonly sloMs?: number | undefined;
  /** Time left until the deadline. */
  readonly leftMs?: number | undefined;
  readonly priority?: number | undefined;
}

/** A call in the form in which another host gets it. */
export interface PassedCall {
  readonly name: string;
  readonly version: string;
  /** SHA-256: hosts may have different models under one name. */
  readonly model: string;
  readonly terms: PassedTerms;
  readonly input: PoolInput;
}

export type PassedAnswer =
  | { readonly result: PoolResult; readonly placed: string; readonly isGpu: boolean }
  | { readonly failure: PassedFailure };

/** A failure at the other host. */
export interface PassedFailure {
  readonly code: string;
  readonly status: number;
  readonly message: string;
}

/** Hosts call a call's terms `wish` on the wire: those of two releases may be in one fleet. */
type CallHeader = Asked &
  Omit<PassedCall, 'input' | 'terms'> & { readonly wish: PassedTerms; readonly input: InputHeader };
type AnswerHeader =
  | { readonly failure: PassedFailure }
  | { readonly result: ResultHeader; readonly placed: string; readonly isGpu: boolean };

/** Runs a call at another host. @throws PeerLost */
export async function pass(
  fleet: Fleet,
  member: Member,
  call: PassedCall,
  signal: AbortSignal | undefined,
): Promise<PassedAnswer> {
  const { input, terms: wish, ...rest } = call;
  const { header: described, tensors } = inputMessage(input);
  const frame = { header: { ask: 'call', ...rest, wish, input: described } satisfies CallHeader, tensors };
  const answer = (await fleet.peers.ask(member, frame, { signal })) as Message<AnswerHeader>;
  const { header } = answer;
  if ('failure' in header) return header;
  const { result, placed, isGpu } = header;
  return { result: resultOf({ header: result, tensors: answer.tensors }), placed, isGpu };
}

/** Reads a call from a frame. @throws HostError 'bad-request' */
export function callIn({ header, tensors }: Message<object>): PassedCall {
  const { name, version, model, wish: terms, input } = header as Partial<CallHeader>;
  if (typeof name !== 'string' || typeof version !== 'string' || typeof model !== 'string' || input === undefined) {
    throw new HostError('bad-request', 'the frame of another host is not a call');
  }
  return { name, version, model, terms: terms ?? {}, input: inputOf({ header: input, tensors }) };
}

export function answerFrame({ result, placement }: Ran): Message<object> {
  const { header, tensors } = resultMessage(result);
  const where = { placed: placementText(placement), isGpu: placement.kind === 'gpu' };
  return { header: { ...where, result: header } satisfies AnswerHeader, tensors };
}

export function failureFrame(error: unknown): Message<object> {
  const { code, status, message } = toHostError(error);
  return { header: { failure: { code, status, message } } satisfies AnswerHeader, tensors: [] };
}

/** Whether this host has exactly the content that the other host means. */
export function isHere({ model, input }: PassedCall, version: FunctionVersion): boolean {
  const canTake = input.kind === 'tensors' || version.handlerPath !== undefined;
  return version.modelSha256 === model && version.state.status === 'ready' && canTake;
}
