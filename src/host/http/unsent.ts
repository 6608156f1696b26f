/** How much of a reply waits for its reader. */
import type { Socket } from 'node:net';
import { libcFunction } from '../../process/index.ts';
import { paceBytesMin } from '../limits/watches.ts';

export interface Unsent {
  /** Bytes of the socket's writes that have not ended. */
  readonly bytes: number;
  /** The part of the first of them that the kernel has not taken. */
  readonly ofFirst: number;
}

interface Handle {
  readonly fd?: number;
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

const [socketLevel, memoryInfo] = [1, 55];
/** What that option tells, in words of 32 bits; and which of them say how much the kernel keeps, and of how much. */
const memory = new Uint32Array(9);
const [sendBuffer, queued] = [3, 5];
const memoryBytes = Uint32Array.of(memory.byteLength);
const getOption = 'int getsockopt(int fd, int level, int option, void *value, void *bytes)';

/** Whether the kernel takes so many bytes from memory in one go: Linux keeps account of that. Not with TLS, which copies. */
export function takesAtOnce(socket: Socket, bytes: number): boolean {
  const { _handle: handle } = socket as { _handle?: Handle | null };
  if ('encrypted' in socket || socket.writableLength > 0 || handle?.fd === undefined || handle.fd < 0) return false;
  if (libcFunction(getOption)?.(handle.fd, socketLevel, memoryInfo, memory, memoryBytes) !== 0) return false;
  // Beside the bytes it counts its own structures, and the headers of the reply.
  return memory[sendBuffer]! - memory[queued]! >= bytes * (1 + 1 / 8) + 16 * 1024;
}
