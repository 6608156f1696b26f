/** What becomes of a command whose output nobody takes any more: `turntable ... | head`, a closed terminal, a full disk. */

import { writeSync } from 'node:fs';

/**
 * `turntable ... | head` closes the pipe early, which is no failure. What cannot be said on standard error is not said.
 */
export function handleOutputErrors(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    process.stderr.write(`turntable: standard output cannot be written: ${error.message}\n`);
    process.exit(1);
  });
  process.stderr.on('error', () => undefined);
}

/**
 * From now on this process serves, whoever reads its output: lines that cannot be written are lost, and each is tried anew,
 * since a disk has room again some day. A reader that stops without leaving must not stop this process, as a write to a
 * full pipe or terminal would.
 */
export function outliveOutput(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.removeAllListeners('error').on('error', () => undefined);
    const { _handle: handle } = stream as { _handle?: { setBlocking?(isBlocking: boolean): unknown } };
    if (handle !== undefined) handle.setBlocking?.(false);
    else writeToFile(stream);
  }
}

/** Node 20's stream to a file throws where the disk is full, and takes no further line afterwards. */
function writeToFile(stream: NodeJS.WriteStream & { readonly fd: number }): void {
  stream._write = (chunk: string | Buffer, encoding, done) => {
    try {
      writeSync(stream.fd, Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk, encoding));
    } catch {
      // The line is lost.
    }
    done();
  };
}
