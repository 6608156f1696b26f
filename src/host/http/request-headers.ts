/** Request headers that calls share, whether they are answered at once or later. */
import { parseDurationMs } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import type { Exchange } from './exchange.ts';

/** @throws HostError 'bad-request' */
export function sloAsked(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const sloMs = parseDurationMs(header);
  if (sloMs === undefined || sloMs <= 0) {
    throw new HostError('bad-request', "the header X-Turntable-SLO is not a duration such as '100ms' or '1.5s'");
  }
  return sloMs;
}

/** The request's headers as a handler gets them. */
export function plainHeaders(exchange: Exchange): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of Object.keys(exchange.incoming.headers)) headers[name] = exchange.header(name) ?? '';
  // The body that goes along is decompressed already.
  delete headers['content-encoding'];
  return headers;
}
