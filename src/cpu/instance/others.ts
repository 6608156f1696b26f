/** A handler's calls to other functions, on the instance's side: see {@link HandlerContext}. */
import type { Tensor } from '../../tensor/index.ts';
import type { HandlerResponse } from '../types.ts';
import type { FunctionReply, HandlerContext } from './handler.ts';
import { toBody, toHandlerTensor, toTensor } from './handler-tensors.ts';
import { bodyIn, bodyTensor, type OtherAnswerHeader, type OtherCallHeader } from './protocol.ts';

/** What another function answered, with its tensors or the body of its reply. */
export interface OtherAnswered {
  readonly header: OtherAnswerHeader;
  readonly tensors: readonly Tensor[];
}

/** One call, on its way to the host. */
export interface OtherAsked {
  readonly header: OtherCallHeader;
  readonly tensors: readonly Tensor[];
  readonly answered: (answer: OtherAnswered) => void;
}

/** Why another function did not answer. `status`: the client gets it if the handler does not catch the error. */
class InvokeError extends Error {
  override readonly name = 'InvokeError';
  readonly code: string;
  readonly status: number;
  constructor({ code, status, message }: OtherAnswerHeader & { kind: 'error' }) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/**
 * Calls to other functions from one call's handler. Calls made at once are sent together, and the instance serves
 * others until all of them are answered. The handler only resumes when the instance has returned to it.
 */
export class OtherCalls {
  readonly #leave: (asked: readonly OtherAsked[]) => void;
  #isInStep = false;
  #isLeaving = false;
  /** Made while others are being answered, or not sent yet. */
  #waiting: OtherAsked[] = [];
  #away: readonly OtherAsked[] = [];
  #onQuiet: (() => void) | undefined;

  /** @param leave sends them to the host, and lets the instance go on with other work; {@link back} must follow */
  constructor(leave: (asked: readonly OtherAsked[]) => void) {
    this.#leave = leave;
  }

  readonly context: HandlerContext = {
    invoke: heeded(async (name, tensors) => {
      if (!Array.isArray(tensors)) throw new TypeError('the tensors for another function are no list');
      const given = tensors.map(toTensor);
      const { tensors: outputs } = await this.#ask({ kind: 'tensors', name: nameOf(name), count: given.length }, given);
      return outputs.map(toHandlerTensor);
    }),
    call: heeded(async (name, body, headers = {}) => {
      const given = toBody(body);
      if (given === undefined) throw new TypeError('the body for another function is nothing that can be sent');
      const lowered = Object.fromEntries(Object.entries(headers).map(([key, value]) => [key.toLowerCase(), value]));
      const { header, tensors } = await this.#ask(
        { kind: 'request', name: nameOf(name), headers: { 'content-type': given.type, ...lowered } },
        [bodyTensor(given.body)],
      );
      if (header.kind !== 'response') throw new TypeError(`function '${name}' answered a request with tensors`);
      return replyOf({ status: header.status, headers: header.headers, body: bodyIn(tensors) });
    }),
  };

  /** Runs one step of the handler, and then waits for answers that the handler did not wait for. */
  async during<Result>(step: () => Promise<Result>): Promise<Result> {
    this.#isInStep = true;
    try {
      return await step();
    } finally {
      this.#isInStep = false;
      while (this.#waiting.length + this.#away.length > 0) {
        await new Promise<void>((resolve) => (this.#onQuiet = resolve));
      }
    }
  }

  /** The instance has resumed the handler, with the answers to the calls that were sent. */
  back(answers: readonly OtherAnswered[]): void {
    const asked = this.#away;
    this.#away = [];
    for (const [index, { answered }] of asked.entries()) answered(answers[index]!);
    if (this.#waiting.length > 0) this.#leaveSoon();
    else this.#onQuiet?.();
  }

  #ask(header: OtherCallHeader, tensors: readonly Tensor[]): Promise<OtherAnswered> {
    if (!this.#isInStep) {
      return Promise.reject(new Error(`'${header.name}' was invoked after the handler's step had ended`));
    }
    const answer = new Promise<OtherAnswered>((resolve, reject) => {
      const answered = (given: OtherAnswered): void => {
        if (given.header.kind === 'error') reject(new InvokeError(given.header));
        else resolve(given);
      };
      this.#waiting.push({ header, tensors, answered });
    });
    if (this.#away.length === 0) this.#leaveSoon();
    return answer;
  }

  /** Sends the calls once the handler has made all that it makes at once. */
  #leaveSoon(): void {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    setImmediate(() => {
      this.#isLeaving = false;
      this.#away = this.#waiting;
      this.#waiting = [];
      this.#leave(this.#away);
    });
  }
}

/** A rejection that no handler awaits must not end the process, which others share. */
function heeded<Given extends unknown[], Result>(
  ask: (...given: Given) => Promise<Result>,
): (...given: Given) => Promise<Result> {
  return (...given) => {
    const answer = ask(...given);
    answer.catch(() => undefined);
    return answer;
  };
}

function nameOf(name: unknown): string {
  if (typeof name === 'string' && name !== '') return name;
  throw new TypeError(`the function to invoke must be named by a text, not by ${JSON.stringify(name)}`);
}

function replyOf(response: HandlerResponse): FunctionReply {
  const text = (): string => Buffer.from(response.body).toString('utf8');
  return { ...response, text, json: () => JSON.parse(text()) as unknown };
}
