/** How much of a reply waits for its reader. */
import type { Socket } from 'node:net';
import { paceBytesMin } from '../limits/watches.ts';

export interface Unsent {
  /** Bytes of the socket's writes that have not ended. */
  readonly bytes: number;
  /** The part of the first of them that the kernel has not taken. */
  readonly ofFirst: number;
}

interface Handle {
  readonly writeQueueSize?: number;
  readonly _parent?: Handle;
}

export function unsent(socket: Socket): Unsent {
  // Node's own fields; there are no public ones. With TLS the outer handle counts all of a write until its end.
  const { _handle: handle } = socket as { _handle?: Handle | null };
  return { bytes: socket.writableLength, ofFirst: (handle?._parent ?? handle)?.writeQueueSize ?? 0 };
}

export const hasMoved = (before: Unsent, now: Unsent): boolean =>
  now.bytes < before.bytes || now.bytes === 0 || before.ofFirst - now.ofFirst >= paceBytesMin;
