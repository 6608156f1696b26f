/** The two transports for messages to and from a process or thread, with one interface. */
import { Socket, type OnReadOpts, type SocketConstructorOpts } from 'node:net';
import type { MessagePort, Worker } from 'node:worker_threads';
import { encodeMessage, FrameDecoder, reuse, type FrameRegion, type Message, type Tensor } from '../tensor/index.ts';

/** One end of a channel: messages arrive whole and in order, or not at all. */
export interface Channel<Out extends object> {
  /**
   * Nothing is sent where the other end is gone.
   *
   * @param sent called when the tensors are read no more, at once or later
   */
  send(this: void, header: Out, tensors?: readonly Tensor[], sent?: () => void): void;
}

export interface ChannelEvents<In extends object> {
  readonly message: (message: Message<In>) => void;
  /** The received bytes are not in the wire form; nothing after them can be read. */
  readonly unreadable: (reason: string) => void;
}

const none: readonly Tensor[] = [];
/** Eight records of TLS. */
const sliceBytes = 128 * 1024;

/** Frames of the wire codec (src/tensor/frame.ts) on a socket, as between members of a fleet. */
export function socketChannel<Out extends object, In extends object>(
  socket: Socket,
  events: ChannelEvents<In>,
): Channel<Out> {
  const decoder = new FrameDecoder<In>();
  socket.on('data', (chunk: Buffer) => pass(events, () => decoder.push(chunk)));
  return 'encrypted' in socket ? slicedWriter(socket) : frameWriter(socket);
}

/**
 * For TLS, which encrypts all of a write before the first byte of it leaves, and copies buffers that are written together:
 * each slice is on its way while the next one is encrypted.
 */
function slicedWriter<Out extends object>(socket: Socket): Channel<Out> {
  // Else the stream gathers what waits into one write.
  Object.assign(socket, { _writev: undefined });
  return {
    send(header, tensors = none) {
      if (socket.destroyed) return;
      for (const buffer of encodeMessage({ header, tensors })) {
        for (let at = 0; at < buffer.byteLength; at += sliceBytes) socket.write(buffer.subarray(at, at + sliceBytes));
      }
    },
  };
}

/** For {@link openSocket}: frames are read into the memory in which they stay. Node itself would take 64 KiB for each read. */
export function frameReader<In extends object>(decoder: FrameDecoder<In>, events: ChannelEvents<In>): OnReadOpts {
  return {
    buffer: () => decoder.space(),
    callback: (bytes) => {
      pass(events, () => decoder.filled(bytes));
      return true;
    },
  };
}

/** The socket of a descriptor, which begins to read. */
export function openSocket(fd: number, onread: OnReadOpts): Socket {
  const options: SocketConstructorOpts & { readonly onread: OnReadOpts } = {
    fd,
    readable: true,
    writable: true,
    onread,
  };
  return new Socket(options).resume();
}

function pass<In extends object>(events: ChannelEvents<In>, read: () => Message<In>[]): void {
  let messages: Message<In>[];
  try {
    messages = read();
  } catch (error) {
    events.unreadable(error instanceof Error ? error.message : String(error));
    return;
  }
  for (const each of messages) {
    try {
      events.message(each);
    } catch (error) {
      // Through the reader it would take the messages behind this one along, and Node would fill the same memory again
      // while the decoder looks for the next bytes elsewhere.
      process.nextTick(() => {
        throw error;
      });
    }
  }
}

export function frameWriter<Out extends object>(socket: Socket, region?: FrameRegion): Channel<Out> {
  return {
    send(header, tensors = none, sent) {
      if (socket.destroyed) {
        sent?.();
        return;
      }
      const buffers = encodeMessage({ header, tensors }, region);
      const [first, ...rest] = buffers;
      if (rest.length === 0) {
        socket.write(first!);
        if (socket.writableLength === 0) reuse(first!);
        // It is a copy.
        sent?.();
        return;
      }
      socket.cork();
      socket.write(first!);
      for (const [index, buffer] of rest.entries()) socket.write(buffer, index === rest.length - 1 ? sent : undefined);
      socket.uncork();
    },
  };
}

/** Copies of objects through a thread's port: messages without tensors cross unchanged. */
export function portChannel<Out extends object, In extends object>(
  port: MessagePort | Worker,
  message: ChannelEvents<In>['message'],
): Channel<Out> {
  port.on('message', (sent: In | readonly [In, readonly Tensor[]]) => {
    if (Array.isArray(sent)) message({ header: sent[0] as In, tensors: sent[1] as readonly Tensor[] });
    else message({ header: sent as In, tensors: none });
  });
  return {
    send(header, tensors = none, sent) {
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
      port.postMessage(tensors.length === 0 ? header : [header, tensors]);
      sent?.();
    },
  };
}
