/**
 * Asynchronous calls in Redis, each as two values: the accepted call, and the reply. The first writer of the reply ends
 * the call, be it a run or a cancellation; a second reply is dropped. So a call is answered once, however often a crash
 * makes it run.
 */
import { createHash } from 'node:crypto';
import { bodyIn, bodyTensor } from '../cpu/index.ts';
import { decodeMessage } from '../tensor/index.ts';
import type { AcceptedCall, CallReply, CallSummary } from './calls.ts';
import { joined } from './payload.ts';
import type { RedisLink } from './redis-link.ts';
import { given } from '../tools/index.ts';

/** A call whose acceptance was never finished is forgotten after this. */
const unfinishedMs = 10 * 60_000;

interface CallHeader extends Omit<AcceptedCall, 'body' | 'version' | 'callbackUrl'> {
  readonly version?: string;
  readonly callbackUrl?: string;
  /** Digest of the client's request: the same id with the same digest is the same call. */
  readonly digest: string;
}

type Ending =
  | { readonly state: 'finished'; readonly status: number; readonly headers: CallReply['headers'] }
  | { readonly state: 'cancelled' };

type ReplyHeader = Ending &
  Pick<CallHeader, 'functionName' | 'version' | 'acceptedAtMs' | 'digest' | 'callbackUrl'> & {
    readonly finishedAtMs: number;
  };

/** A call that has not ended. */
export type StoredCall = AcceptedCall & { readonly digest: string };

export type StoredReply = {
  readonly call: Omit<CallSummary, 'callback'>;
  readonly callbackUrl: string | undefined;
  readonly finishedAtMs: number;
  readonly digest: string;
} & ({ readonly state: 'finished'; readonly reply: CallReply } | { readonly state: 'cancelled' });

export class CallStore {
  readonly #link: RedisLink;
  readonly #keepMs: number;

  constructor(link: RedisLink, keepMs: number) {
    this.#link = link;
    this.#keepMs = keepMs;
  }

  /** Writes a call unless its id is taken. Until {@link keep} it may expire. */
  async put(call: AcceptedCall): Promise<'put' | 'same' | 'other'> {
    const { commands } = this.#link;
    const digest = digestOf(call);
    const ended = await this.reply(call.id);
    if (ended !== undefined) return ended.digest === digest ? 'same' : 'other';
    const put = await commands.set(this.#link.key('call', call.id), encodeCall(call, digest), 'PX', unfinishedMs, 'NX');
    if (put !== null) {
      // A call of this id may have ended since the first look: then the reply tells.
      const before = await this.reply(call.id);
      if (before === undefined) return 'put';
      await commands.del(this.#link.key('call', call.id));
      return before.digest === digest ? 'same' : 'other';
    }
    const bytes = await commands.getBuffer(this.#link.key('call', call.id));
    const known = bytes === null ? (await this.reply(call.id))?.digest : decodeCall(bytes).digest;
    return known === digest ? 'same' : 'other';
  }

  /**
   * True for one caller only. A call whose acceptance stopped midway is completed by the next try, or by the run that
   * ends it.
   */
  async keep(id: string): Promise<boolean> {
    return (await this.#link.commands.persist(this.#link.key('call', id))) === 1;
  }

  async call(id: string): Promise<StoredCall | undefined> {
    const bytes = await this.#link.commands.getBuffer(this.#link.key('call', id));
    return bytes === null ? undefined : decodeCall(bytes);
  }

  /** Ends a call. `ended` false: it had ended already, and nothing was changed; `kept` as of {@link keep}. */
  async end(
    call: StoredCall,
    ending: { readonly state: 'cancelled' } | { readonly state: 'finished'; readonly reply: CallReply },
  ): Promise<{ readonly ended: boolean; readonly kept: boolean }> {
    const { functionName, version, acceptedAtMs, digest, callbackUrl } = call;
    const header: ReplyHeader = {
      ...(ending.state === 'cancelled'
        ? { state: 'cancelled' }
        : { state: 'finished', status: ending.reply.status, headers: ending.reply.headers }),
      finishedAtMs: Date.now(),
      functionName,
      ...given({ version, callbackUrl }),
      acceptedAtMs,
      digest,
    };
    const bytes = joined(header, ending.state === 'finished' ? [bodyTensor(ending.reply.body)] : []);
    const replies = await this.#link.commands
      .multi()
      .set(this.#link.key('reply', call.id), bytes, 'PX', this.#keepMs, 'NX')
      .persist(this.#link.key('call', call.id))
      .del(this.#link.key('call', call.id))
      .exec();
    return { ended: replies?.[0]?.[1] === 'OK', kept: replies?.[1]?.[1] === 1 };
  }

  async reply(id: string): Promise<StoredReply | undefined> {
    const bytes = await this.#link.commands.getBuffer(this.#link.key('reply', id));
    if (bytes === null) return undefined;
    const { header, tensors } = decodeMessage<ReplyHeader>(bytes);
    const { functionName, version, acceptedAtMs, callbackUrl, finishedAtMs, digest } = header;
    const common = { call: { id, functionName, version, acceptedAtMs }, callbackUrl, finishedAtMs, digest };
    if (header.state === 'cancelled') return { ...common, state: 'cancelled' };
    const { status, headers } = header;
    return { ...common, state: 'finished', reply: { status, headers, body: bodyIn(tensors) } };
  }
}

/** Two calls with one id and one digest are the same call. */
function digestOf({ functionName, version, method, url, body, callbackUrl }: AcceptedCall): string {
  const hash = createHash('sha256').update(JSON.stringify([functionName, version, method, url, callbackUrl]));
  return hash.update(body).digest('hex');
}

function encodeCall(call: AcceptedCall, digest: string): Buffer {
  const { version, callbackUrl, body, ...rest } = call;
  const header: CallHeader = { ...rest, digest, ...given({ version, callbackUrl }) };
  return joined(header, [bodyTensor(body)]);
}

function decodeCall(bytes: Uint8Array): StoredCall {
  const { header, tensors } = decodeMessage<CallHeader>(bytes);
  return { ...header, version: header.version, callbackUrl: header.callbackUrl, body: bodyIn(tensors) };
}
