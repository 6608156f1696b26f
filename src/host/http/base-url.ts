import { isEncrypted, isLoopback } from '../access/access.ts';
import type { Exchange } from './exchange.ts';

/** The host's address as the client knows it. */
export function baseUrlOf(exchange: Exchange): string {
  const { host } = exchange.incoming.headers;
  const { localAddress = '127.0.0.1', localPort } = exchange.incoming.socket;
  // The Host header comes from the client; it is shown only in a form that cannot break out of a shell command.
  const named = host !== undefined && (isLoopback(host) || /^[A-Za-z0-9.-]+(:\d+)?$/.test(host));
  return `${isEncrypted(exchange.incoming) ? 'https' : 'http'}://${named ? host : `${localAddress}:${localPort}`}`;
}
