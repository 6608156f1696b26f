/** Who may manage functions. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { HostError } from '../errors.ts';

/**
 * Throws unless the request may manage functions: with API keys configured it needs one of them as
 * `Authorization: Bearer`; without any (the host then listens on loopback only) it must not come from a web page of
 * another origin, nor under a foreign name that a DNS server points at this machine.
 *
 * @throws HostError 'unauthorized' | 'forbidden'
 */
export function authorizeManagement(apiKeys: readonly string[], incoming: IncomingMessage): void {
  if (apiKeys.length > 0) {
    const { authorization } = incoming.headers;
    if (authorization === undefined) {
      throw new HostError('unauthorized', 'managing functions needs an API key: Authorization: Bearer <key>');
    }
    const [, key] = /^Bearer +(\S+) *$/i.exec(authorization) ?? [];
    if (key === undefined) {
      throw new HostError('unauthorized', 'the Authorization header is not of the form: Bearer <key>');
    }
    if (!isOneOf(apiKeys, key)) throw new HostError('forbidden', 'the API key is wrong');
    return;
  }
  const { host, origin } = incoming.headers;
  if (!isLoopback(host)) {
    throw new HostError(
      'forbidden',
      'without API keys, functions are managed under a loopback name such as localhost only',
    );
  }
  const fetchSite = incoming.headers['sec-fetch-site'];
  const foreign = origin !== undefined && origin !== `http://${host}`;
  if (foreign || fetchSite === 'cross-site' || fetchSite === 'same-site') {
    throw new HostError('forbidden', 'a web page of another origin may not manage functions');
  }
}

/** Compares digests, all of them, so that the time taken tells neither a prefix, nor a length, nor which key it was. */
function isOneOf(apiKeys: readonly string[], key: string): boolean {
  const given = sha256(key);
  let found = false;
  for (const candidate of apiKeys) if (timingSafeEqual(sha256(candidate), given)) found = true;
  return found;
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Whether a Host header names this machine's loopback. */
export function isLoopback(host: string | undefined): boolean {
  if (host === undefined) return false;
  const name = host.replace(/:\d+$/, '').toLowerCase();
  return name === 'localhost' || name.endsWith('.localhost') || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name);
}
