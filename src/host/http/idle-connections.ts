/**
 * Connections that wait for their next request. Node ends one by a timer once `keepAliveTimeout` is over, and timers come
 * before reads: where the process did not run for a while (stopped, on a suspended machine, without a core) a request that
 * had come in time lay unread, and its client met a reset, which says nothing of whether its call ran.
 */
import type { Server } from 'node:http';
import type { Server as SecureServer } from 'node:https';
import type { Socket } from 'node:net';

/** Has what has come over a connection read before it is ended as idle. */
export function readBeforeEnding(server: Server | SecureServer): void {
  // Node leaves the ending to listeners, if there are any.
  server.on('timeout', (socket: Socket) => {
    const { bytesRead } = socket;
    // Behind the reads of a whole turn of the event loop, wherever in a turn this is. A request that has begun has other limits.
    setImmediate(setImmediate, () => {
      if (socket.bytesRead === bytesRead) socket.destroy();
    });
  });
}
