/** `turntable call --trace`: where the time of one call went, as the host tells it in Server-Timing. */
import { randomBytes } from 'node:crypto';
import { formatMs } from '../tools/index.ts';
import { printable } from './table.ts';

/**
 * A W3C `traceparent` header. It continues the trace that the variable TRACEPARENT names, if the program that runs this
 * command has set it, and begins a new trace otherwise.
 */
export function newTraceparent(environment: NodeJS.ProcessEnv = process.env): string {
  const [, outerTrace] =
    /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$/.exec(environment['TRACEPARENT'] ?? '') ?? [];
  return `00-${outerTrace ?? randomBytes(16).toString('hex')}-${randomBytes(8).toString('hex')}-01`;
}

interface Span {
  readonly name: string;
  readonly ms: number;
  readonly about: string;
}

/** A tree: the client, the host below it, and below that each part of the invocation that took time. */
export function traceText(traceparent: string, clientMs: number, headers: Headers): string {
  const spans = spansOf(headers.get('server-timing') ?? '');
  const total = spans.find(({ name }) => name === 'total');
  const parts = spans.filter(({ name, ms }) => name !== 'total' && ms > 0);
  const lines: Span[] = [{ name: 'client', ms: clientMs, about: 'with the network' }];
  if (total !== undefined) {
    const otherMs = total.ms - parts.reduce((sum, { ms }) => sum + ms, 0);
    const request = headers.get('x-request-id');
    lines.push({ ...total, name: '└─ host', about: request === null ? '' : `request ${request}` });
    // Server-Timing names no part for these, so they are what is left of the total.
    const shown = [...parts, { name: 'other', ms: Math.max(0, otherMs), about: 'bodies, and the way to the process' }];
    for (const [index, span] of shown.entries()) {
      lines.push({ ...span, name: `   ${index === shown.length - 1 ? '└─' : '├─'} ${span.name}` });
    }
  }
  const width = Math.max(...lines.map(({ ms }) => formatMs(ms).length));
  return [
    `trace ${traceparent.split('-')[1] ?? ''}`,
    ...lines.map(({ name, ms, about }) =>
      `${name.padEnd(19)} ${formatMs(ms).padStart(width)}  ${printable(about)}`.trimEnd(),
    ),
  ].join('\n');
}

/** `queue;dur=0.1, model;dur=1.2;desc="cpu pool warm"` */
function spansOf(header: string): Span[] {
  return [...header.matchAll(/([\w-]+);dur=([\d.]+)(?:;desc="([^"]*)")?/g)].map(([, name = '', ms, about = '']) => ({
    name,
    ms: Number(ms),
    about,
  }));
}
