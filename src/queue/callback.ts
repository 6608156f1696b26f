/** Sends a finished call's reply to its callback URL. */
import { createHmac } from 'node:crypto';
import { request as requestHttp, type OutgoingHttpHeaders } from 'node:http';
import { request as requestHttps } from 'node:https';
import { clientId } from './call-ids.ts';
import type { CallbackTargets } from './callback-targets.ts';
import type { CallReply, CallSummary } from './calls.ts';

/** Headers of the reply that must not be sent on to the callback. */
const left = new Set([
  'connection',
  'content-length',
  'date',
  'host',
  'keep-alive',
  'transfer-encoding',
  'x-request-id',
]);

export interface CallbackOptions {
  readonly targets: CallbackTargets;
  readonly timeoutMs: number;
  /** Signs the body if it is set. */
  readonly secret: string | undefined;
}

/**
 * The signature for the receiver: HMAC-SHA256 over `<timestamp>.<body>`, as `sha256=<hex>`. The timestamp (seconds
 * since 1970) is in `X-Turntable-Timestamp`, so that an old callback cannot be replayed.
 */
export function callbackSignature(secret: string, timestamp: string, body: Uint8Array): string {
  return `sha256=${createHmac('sha256', secret).update(`${timestamp}.`).update(body).digest('hex')}`;
}

/**
 * POSTs the reply's body with its headers, `X-Call-Id`, `X-Function-Name` and `X-Function-Status`, and with a signature
 * if a secret is set. The connection goes to an address that `targets` has allowed, whatever the name resolves to a
 * moment later.
 *
 * @throws Error in a sentence unless the answer's status is 2xx and comes within `timeoutMs`
 */
export async function postCallback(
  url: string,
  { call, reply }: { readonly call: Omit<CallSummary, 'callback'>; readonly reply: CallReply },
  { targets, timeoutMs, secret }: CallbackOptions,
): Promise<void> {
  // An older host may have accepted a URL that this one refuses.
  const checked = targets.check(url);
  if ('reason' in checked) throw new Error(`the callback was not sent: its address is ${checked.reason}`);
  const headers: OutgoingHttpHeaders = {};
  for (const [name, value] of reply.headers) {
    const key = name.toLowerCase();
    if (!left.has(key)) headers[key] = key in headers ? [headers[key] as string, value].flat() : value;
  }
  headers['x-call-id'] = clientId(call.id);
  headers['x-function-name'] = call.functionName;
  headers['x-function-status'] = String(reply.status);
  headers['content-length'] = String(reply.body.byteLength);
  if (secret !== undefined) {
    const timestamp = String(Math.floor(Date.now() / 1000));
    headers['x-turntable-timestamp'] = timestamp;
    headers['x-turntable-signature'] = callbackSignature(secret, timestamp, reply.body);
  }
  let status: number;
  try {
    status = await post(new URL(checked.url), headers, reply.body, targets, timeoutMs);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`the callback could not be sent: ${reason}`, { cause: error });
  }
  if (status < 200 || status > 299) throw new Error(`the callback was answered with status ${status}`);
}

/** Resolves to the answer's status; its body is not read. */
async function post(
  url: URL,
  headers: OutgoingHttpHeaders,
  body: Uint8Array,
  { lookup }: CallbackTargets,
  timeoutMs: number,
): Promise<number> {
  return await new Promise((resolve, reject) => {
    const request = url.protocol === 'https:' ? requestHttps : requestHttp;
    const signal = AbortSignal.timeout(timeoutMs);
    const sent = request(url, { method: 'POST', headers, lookup, signal, agent: false }, (response) => {
      resolve(response.statusCode ?? 0);
      response.destroy();
    });
    sent.on('error', (error) => {
      const late = `no answer within ${timeoutMs} ms`;
      reject(signal.aborted ? new Error(late, { cause: error }) : error);
    });
    sent.end(body);
  });
}
