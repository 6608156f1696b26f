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
 * Ports of other protocols, to which `fetch` sends nothing (https://fetch.spec.whatwg.org/#port-blocking): a client could
 * have a host talk to somebody's mail server.
 */
const blockedPorts: ReadonlySet<number> = new Set([
  0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
  111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532,
  540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
  6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10_080,
]);

/**
 * An address that a reply may be sent to, or why not, to follow "the header X-Callback-Url is". Redirects are not
 * followed, so that what is checked here is what is called.
 */
export function checkCallbackUrl(text: string): { readonly url: string } | { readonly reason: string } {
  if (text.length > 2000) return { reason: 'longer than 2000 characters' };
  if (!URL.canParse(text)) return { reason: 'not a URL' };
  const { protocol, port, href } = new URL(text);
  if (protocol !== 'http:' && protocol !== 'https:') return { reason: 'not an http or https URL' };
  if (port !== '' && blockedPorts.has(Number(port)))
    return { reason: `of port ${port}, which belongs to another protocol` };
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
