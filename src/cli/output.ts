/** Commands whose output is not read to its end: `turntable ... | head`, a closed terminal, a full disk. */

import { closeSync, fstatSync, openSync, writeSync } from 'node:fs';
import { format, stripVTControlCharacters } from 'node:util';
import type { Log } from '../tools/index.ts';

/** Different texts that are remembered. */
const textsMax = 1000;

/**
 * `turntable ... | head` closes the pipe early, which is no failure. Errors of standard error itself are ignored.
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
 * From now on this process serves even if its output cannot be written. Such lines are lost. Each new line is tried,
 * since a full disk may have room again. A reader that stops reading must not block this process, as a write to a full
 * pipe or terminal would.
 */
export function outliveOutput(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.removeAllListeners('error').on('error', () => undefined);
    const { _handle: handle } = stream as { _handle?: { setBlocking?(isBlocking: boolean): unknown } };
    if (handle !== undefined) handle.setBlocking?.(false);
    else writeToFile(stream);
  }
}

/** The terminal is gone. At its end Node restores the modes of terminals, and aborts over one that it cannot reach. */
export function leaveTerminal(): void {
  for (const fd of [0, 1, 2]) {
    if (!fstatSync(fd).isCharacterDevice()) continue; // It does not answer any more that it is a terminal.
    closeSync(fd);
    openSync('/dev/null', 'r+'); // Takes the lowest number that is free.
  }
}

/**
 * What libraries print, such as BullMQ's and Node's warnings, becomes lines of the log, so that a log of JSON stays one. They
 * repeat themselves at each connection: one text is logged once.
 */
export function logOtherOutput(log: Log): void {
  const said = new Set<string>();
  const say = (level: 'info' | 'warn', text: string): void => {
    const plain = stripVTControlCharacters(text);
    if (said.has(plain) || said.size >= textsMax) return;
    said.add(plain);
    log[level]({}, plain);
  };
  for (const method of ['log', 'info', 'debug', 'warn', 'error', 'trace'] as const) {
    const level = method === 'warn' || method === 'error' ? 'warn' : 'info';
    console[method] = (...values: readonly unknown[]): void => say(level, format(...values));
  }
  process.removeAllListeners('warning').on('warning', ({ name, message }) => say('warn', `${name}: ${message}`));
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
