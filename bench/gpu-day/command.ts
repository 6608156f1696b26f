/** Runs one part of a GPU day as a process of its own, so that nothing it does ends the day. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';

export interface Command {
  /** Arguments of Node, the only program that the machine must have. */
  readonly arguments: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** Stores its output under this name. */
  readonly output: string;
}

const root = join(import.meta.dirname, '..', '..');
/** Time between the request to end and the kill. */
const graceMs = 5000;

/**
 * Resolves with the path of its output.
 * @throws Error with the last printed line if it fails or does not end in time
 */
export async function runCommand(command: Command, folder: string, minutes: number): Promise<string> {
  const path = join(folder, command.output);
  const file = createWriteStream(`${path}.part`);
  const child = spawn(process.execPath, command.arguments, {
    cwd: root,
    env: { ...process.env, ...command.environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let tail = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data: Buffer) => {
      file.write(data);
      tail = (tail + data.toString('utf8')).slice(-4096);
    });
  }
  let isLate = false;
  const kill = setTimeout(() => {
    isLate = true;
    child.kill('SIGTERM');
    setTimeout(() => child.kill('SIGKILL'), graceMs).unref();
  }, minutes * 60_000);
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  clearTimeout(kill);
  file.end();
  await once(file, 'finish');
  await rename(`${path}.part`, path);
  if (isLate) throw new Error(`it was ended after ${minutes.toFixed(1)} minutes; what it printed: ${path}`);
  if (code === 0) return path;
  const last = tail.trim().split('\n').at(-1) ?? '';
  throw new Error(`it ended with ${signal ?? code}: ${last || 'it printed nothing'}; all that it printed: ${path}`);
}
