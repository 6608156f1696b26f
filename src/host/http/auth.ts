/** Which web pages may reach a host without API keys. */
import type { IncomingMessage } from 'node:http';
import type { HostConfig } from '../config.ts';
import { HostError } from '../errors.ts';

/**
 * Keeps web pages of other origins away from a host without API keys, whatever they ask for. Such a host listens on loopback only, where
 * every page in a browser of this machine could reach it: directly, or under a foreign name that a DNS server points here.
 *
 * @param origins whose pages may come all the same; '*': all
 * @throws HostError 'forbidden'
 */
export function checkOrigin(
  { apiKeys, cors: { origins } }: Pick<HostConfig, 'apiKeys' | 'cors'>,
  incoming: IncomingMessage,
): void {
  if (apiKeys.length > 0) return;
  const { host, origin, 'sec-fetch-site': site } = incoming.headers;
  // A browser always names the host.
  if (host !== undefined && !isLoopback(host)) {
    throw new HostError(
      'forbidden',
      'without API keys, this host is reached under a loopback name such as localhost only',
    );
  }
  if (origin === undefined && site === undefined) return;
  if (origin !== undefined && isAllowedOrigin(origins, origin)) return;
  const own = `${isEncrypted(incoming) ? 'https' : 'http'}://${host}`;
  const isForeign = origin !== undefined && origin !== own;
  const isFromOther = site === 'cross-site' || site === 'same-site';
  // A link to the dashboard, or a bookmark on another page.
  const isVisit = incoming.headers['sec-fetch-mode'] === 'navigate' && incoming.url?.split('?', 1)[0] === '/';
  if (isForeign || (isFromOther && !isVisit)) {
    throw new HostError('forbidden', 'a web page of another origin may not use this host; "cors.origins" can allow it');
  }
}

export function isAllowedOrigin(origins: readonly string[], origin: string): boolean {
  return origins.includes(origin) || origins.includes('*');
}

export function isEncrypted({ socket }: IncomingMessage): boolean {
  return 'encrypted' in socket && socket.encrypted === true;
}

/** Whether a Host header names this machine's loopback. */
export function isLoopback(host: string | undefined): boolean {
  if (host === undefined) return false;
  const name = host.replace(/:\d+$/, '').toLowerCase();
  return name === 'localhost' || name.endsWith('.localhost') || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name);
}
