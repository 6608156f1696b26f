/**
 * The `fetch` of commands. Node's own compiles a parser in WebAssembly in each process that gets an answer. That takes
 * 0.3 s of a core and 30 MB, more than the rest of a command such as `turntable ps`.
 */
import { request, type IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';

/** Does the same as the global `fetch`, which it calls for what is rare: TLS, redirects, and bodies of other kinds. */
export async function httpFetch(where: string, init: RequestInit = {}): Promise<Response> {
  const { method = 'GET', body = null, signal } = init;
  const url = new URL(where);
  if (url.protocol !== 'http:' || !(body === null || typeof body === 'string' || body instanceof Uint8Array)) {
    return await fetch(where, init);
  }
  const bytes = body === null ? undefined : Buffer.from(body);
  const reply = await new Promise<IncomingMessage>((resolve, reject) => {
    const headers = new Headers(init.headers);
    if (bytes !== undefined) headers.set('content-length', String(bytes.byteLength));
    const outgoing = request(url, { method, headers: Object.fromEntries(headers), signal: signal ?? undefined });
    outgoing.on('error', reject).on('response', resolve).end(bytes);
  });
  const status = reply.statusCode ?? 0;
  if (status >= 300 && status < 400 && reply.headers.location !== undefined) {
    reply.resume();
    return await fetch(where, init);
  }
  const headers = new Headers();
  for (const [name, value = ''] of Object.entries(reply.headers)) {
    for (const each of [value].flat()) headers.append(name, each);
  }
  const isEmpty = status === 204 || status === 205 || status === 304;
  if (isEmpty) reply.resume();
  const content = isEmpty ? null : (Readable.toWeb(reply) as ReadableStream<Uint8Array>);
  return new Response(content, { status, statusText: reply.statusMessage ?? '', headers });
}
