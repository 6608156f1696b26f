/**
 * Connections whose client has sent FIN. It may still read (a half-closed connection, RFC 9112 section 9.6) and gets its
 * answer, or it is gone: both look the same until the host writes. A client that is gone answers a byte with a reset,
 * which the next byte meets. So while a reply waits, its first bytes are sent ahead, one at a time: every reply of
 * HTTP/1.x begins with the same nine.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

const statusStart = 'HTTP/1.1 ';
/** Each further pause is twice as long: the nine bytes last for 25 s. */
const firstPauseMs = 50;

/** Once the client has sent FIN, calls `probe` with growing pauses until the connection is closed. */
export function whileHalfClosed(socket: Socket, probe: () => void): void {
  const begin = (): void => {
    let timer: NodeJS.Timeout;
    const pause = (ms: number): void => {
      timer = setTimeout(() => {
        probe();
        pause(2 * ms);
      }, ms).unref();
    };
    pause(firstPauseMs);
    socket.once('close', () => clearTimeout(timer));
  };
  if (socket.readableEnded) begin();
  else socket.once('end', begin);
}

/** Finds out whether a client that has sent FIN is gone: the connection then ends, and with it the client's calls. */
export function findGoneClient(socket: Socket): void {
  /** Bytes of the next reply that are sent already. */
  let sent = 0;
  const write = socket.write.bind(socket);
  /** The next reply begins after the bytes that are sent. */
  const writeRest = (chunk: string | Uint8Array, ...rest: never[]): boolean => {
    Object.assign(socket, { write });
    const left = typeof chunk === 'string' ? chunk.slice(sent) : chunk.subarray(sent);
    sent = 0;
    return write(left, ...rest);
  };
  whileHalfClosed(socket, () => {
    const reply = replyInTurn(socket);
    if (reply === undefined || reply.headersSent || sent === statusStart.length || !socket.writable) return;
    write(statusStart.charAt(sent++));
    Object.assign(socket, { write: writeRest });
  });
}

/** The reply that the connection is waiting for, or that is being sent. */
export function replyInTurn(socket: Duplex): ServerResponse | undefined {
  // Node's own field; there is no public one.
  const { _httpMessage: reply } = socket as { _httpMessage?: ServerResponse | null };
  return reply ?? undefined;
}
