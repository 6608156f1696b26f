/** Sends a finished call's reply to the address that its client gave. */
import type { CallReply, CallSummary } from './calls.ts';

/** Headers of the reply that would be wrong, or somebody else's, on the way to the callback. */
const left = new Set([
  'connection',
  'content-length',
  'date',
  'host',
  'keep-alive',
  'transfer-encoding',
  'x-request-id',
]);

/**
 * An address that a reply may be sent to, or why not, to follow "the header X-Callback-Url is". Redirects are not
 * followed, so that what is checked here is what is called.
 */
export function checkCallbackUrl(text: string): { readonly url: string } | { readonly reason: string } {
  if (text.length > 2000) return { reason: 'longer than 2000 characters' };
  if (!URL.canParse(text)) return { reason: 'not a URL' };
  const { protocol, href } = new URL(text);
  if (protocol !== 'http:' && protocol !== 'https:') return { reason: 'not an http or https URL' };
  return { url: href };
}

/**
 * POSTs the reply's body with its headers, `X-Call-Id`, `X-Function-Name` and `X-Function-Status`; a user and password in
 * the address go as basic authentication.
 *
 * @throws Error in a sentence unless the answer's status is 2xx and comes within `timeoutMs`
 */
export async function postCallback(
  url: string,
  { call, reply }: { readonly call: CallSummary; readonly reply: CallReply },
  timeoutMs: number,
): Promise<void> {
  const headers = new Headers();
  for (const [name, value] of reply.headers) {
    if (!left.has(name.toLowerCase())) headers.append(name, value);
  }
  const target = new URL(url);
  if (target.username !== '' || target.password !== '') {
    const login = `${decoded(target.username)}:${decoded(target.password)}`;
    headers.set('authorization', `Basic ${Buffer.from(login).toString('base64')}`);
    [target.username, target.password] = ['', ''];
  }
  headers.set('x-call-id', call.id);
  headers.set('x-function-name', call.functionName);
  headers.set('x-function-status', String(reply.status));
  let status: number;
  try {
    const response = await fetch(target, {
      method: 'POST',
      headers,
      body: Uint8Array.from(reply.body),
      redirect: 'manual',
      signal: AbortSignal.timeout(timeoutMs),
    });
    await response.body?.cancel();
    ({ status } = response);
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`the callback could not be sent: ${reason}`, { cause: error });
  }
  if (status < 200 || status > 299) throw new Error(`the callback was answered with status ${status}`);
}

/** What a client did not encode is taken as it is. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
