/** Clients that follow the log of a function. */
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { FunctionLog } from '../records/function-log.ts';
import type { Exchange } from './exchange.ts';
import { LogStreams } from './event-streams.ts';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

test('a function with two megabytes of log is followed from its oldest line on, and then further', async () => {
  let nowMs = 0;
  const log = new FunctionLog({ now: () => nowMs });
  const line = { source: 'handler', level: 'info', text: 'x'.repeat(4000) } as const;
  for (let count = 0; count < 500; count++) {
    nowMs += 10;
    log.add('loud', line);
  }
  const streams = new LogStreams(log);
  server = createServer((_request, outgoing: ServerResponse) => {
    streams.follow({ outgoing, requestId: 'r', callId: 'c' } as Exchange, 'loud', 500);
    // While no earlier line can have been read.
    log.add('loud', { ...line, text: 'the last one' });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const reply = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  let text = '';
  const decoder = new TextDecoder();
  for await (const chunk of reply.body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk, { stream: true });
    if (text.includes('the last one')) break;
  }
  expect(text.match(/^event: line$/gm)).toHaveLength(501);
  streams.close();
});
