/** Reports this process's state to systemd (sd_notify), if it was started from a unit with `Type=notify`. */
import { libcFunction } from './libc.ts';

const unixFamily = 1;
const datagramCloseOnExec = 2 | 0x8_0000;
const noSignal = 0x4000;

/** @returns false without a service manager: no NOTIFY_SOCKET, another system than Linux, or a socket that is gone */
export function tellServiceManager(state: 'READY=1' | 'STOPPING=1'): boolean {
  const socketPath = process.env['NOTIFY_SOCKET'];
  if (socketPath === undefined || !/^[/@]/.test(socketPath)) return false;
  // Node has no datagrams over Unix sockets.
  const socket = libcFunction('int socket(int family, int type, int protocol)');
  const send = libcFunction(
    'long sendto(int socket, const void *message, size_t bytes, int flags, const void *address, uint addressBytes)',
  );
  const close = libcFunction('int close(int descriptor)');
  if (socket === undefined || send === undefined || close === undefined) return false;
  const descriptor = socket(unixFamily, datagramCloseOnExec, 0) as number;
  if (descriptor < 0) return false;
  try {
    const message = Buffer.from(state);
    const address = unixAddress(socketPath);
    return send(descriptor, message, message.length, noSignal, address, address.length) === message.length;
  } finally {
    close(descriptor);
  }
}

/** `struct sockaddr_un`; a name that begins with @ is an abstract one, which begins with a zero byte. */
export function unixAddress(path: string): Buffer {
  return Buffer.concat([
    new Uint8Array(Uint16Array.of(unixFamily).buffer),
    Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : `${path}\0`),
  ]);
}
