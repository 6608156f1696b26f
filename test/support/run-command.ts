/**
 * Commands that tests run, started without a fork: a worker that has run many files has a gigabyte, and pays for a copy
 * of its page tables at each fork (src/process/spawn.ts).
 */
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { spawn, type SpawnedProcess } from '../../src/process/spawn.ts';

export interface CommandOptions {
  /** Default: this process's folder. */
  readonly cwd?: string;
  /** Default: this process's variables. */
  readonly env?: NodeJS.ProcessEnv;
}

export interface Outcome {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running command, with its standard output and error as text; nothing is on its standard input. */
export interface Command {
  readonly child: SpawnedProcess;
  readonly stdout: Socket;
  readonly stderr: Socket;
}

/** @param program a path, or a name that is looked for as a shell does */
export function startCommand(program: string, words: readonly string[], options: CommandOptions = {}): Command {
  const { child, pipes } = start('ignore', program, words, options);
  return { child, stdout: pipes[1]!, stderr: pipes[2]! };
}

function start(stdin: 'ignore' | 'pipe', program: string, words: readonly string[], options: CommandOptions) {
  const { cwd = process.cwd(), env = process.env } = options;
  const child = spawn('/bin/sh', ['-c', 'cd "$0" && exec "$@"', cwd, program, ...words], {
    env,
    stdio: [stdin, 'pipe', 'pipe'],
    detached: false,
  });
  const pipes = child.stdio as (Socket | null)[];
  for (const pipe of pipes) pipe?.setEncoding('utf8');
  return { child, pipes };
}

/** Runs a command to its end, with `input` as its standard input. */
export async function runCommand(
  program: string,
  words: readonly string[],
  { input = '', ...options }: CommandOptions & { readonly input?: string } = {},
): Promise<Outcome> {
  const { child, pipes } = start('pipe', program, words, options);
  const exited = new Promise<number | null>((resolve) => void child.on('exit', resolve));
  // A command may end without reading it.
  pipes[0]!.on('error', () => undefined).end(input);
  const [stdout, stderr] = await Promise.all([text(pipes[1]!), text(pipes[2]!)]);
  return { exitCode: await exited, stdout, stderr };
}

/** The standard output of a command that must succeed. */
export async function outputOf(...command: Parameters<typeof runCommand>): Promise<string> {
  const { exitCode, stdout, stderr } = await runCommand(...command);
  if (exitCode !== 0) throw new Error(`exit code ${exitCode} of ${command[0]} ${command[1].join(' ')}: ${stderr}`);
  return stdout;
}
