/**
 * Command lines in this process, for tests of what a command asks of a host: most of a command's work is the start of its
 * process. test/cli/commands.test.ts and the pages of docs/ run commands as users do.
 */
import { format } from 'node:util';
import { vi } from 'vitest';
import { runCommandLine } from '../../src/cli/command-line.ts';
import type { Outcome } from '../support/run-command.ts';

let last: Promise<unknown> = Promise.resolve();

/** Runs one command line; those that are asked for meanwhile wait, since a process has one standard output. */
export function turntableHere(words: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Outcome> {
  const outcome = last.then(() => runHere(words, env));
  last = outcome.catch(() => undefined);
  return outcome;
}

async function runHere(words: readonly string[], env: Readonly<Record<string, string>>): Promise<Outcome> {
  let stdout = '';
  let stderr = '';
  // Without the user's settings for their own host.
  for (const name of Object.keys(process.env)) if (name.startsWith('TURNTABLE_')) vi.stubEnv(name, undefined);
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  const spies = [
    vi.spyOn(console, 'log').mockImplementation((...said) => void (stdout += `${format(...said)}\n`)),
    vi.spyOn(console, 'error').mockImplementation((...said) => void (stderr += `${format(...said)}\n`)),
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => ((stdout += String(text)), true)),
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => ((stderr += String(text)), true)),
  ];
  const exitCodeBefore = process.exitCode;
  process.exitCode = undefined;
  try {
    const exitCode = await runCommandLine(words);
    return { exitCode, stdout, stderr };
  } finally {
    process.exitCode = exitCodeBefore;
    for (const spy of spies) spy.mockRestore();
    vi.unstubAllEnvs();
  }
}
