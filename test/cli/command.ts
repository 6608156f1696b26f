/** Runs the `turntable` command as a user does: compiled, and in its own process. */
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { packageRoot } from '../../src/host/config/options.ts';
import type { SpawnedProcess } from '../../src/process/spawn.ts';
import { runCommand, startCommand, type Outcome } from '../support/run-command.ts';

const command = join(packageRoot, 'bin', 'turntable.js');

/** Without the user's settings for their own host, but with those of vitest.config.ts. */
function environment(extra: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('TURNTABLE_') || name === 'TURNTABLE_CPU_BLANK_INSTANCES',
  );
  return { ...Object.fromEntries(kept), ...extra };
}

export async function turntable(
  words: readonly string[],
  options: { readonly env?: Readonly<Record<string, string>>; readonly cwd?: string; readonly input?: string } = {},
): Promise<Outcome> {
  const { env = {}, cwd = packageRoot, input } = options;
  return await runCommand(process.execPath, [command, ...words], {
    env: environment(env),
    cwd,
    ...(input === undefined ? {} : { input }),
  });
}

export interface ServingHost {
  readonly url: string;
  readonly child: SpawnedProcess;
  /** Its output to standard error so far. */
  stderr(): string;
  /** Sends a signal and returns the exit code. */
  end(signal?: NodeJS.Signals): Promise<number | null>;
}

/** Starts `turntable worker`, and waits until it takes calls. */
export async function startWorkerCommand(
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<SpawnedProcess> {
  const { child, stdout, stderr } = startCommand(process.execPath, [command, 'worker', ...words], {
    cwd: packageRoot,
    env: environment(env),
  });
  stderr.resume();
  await new Promise<void>((resolve, reject) => {
    createInterface(stdout).on('line', (line) => {
      if (line.includes('takes overflow')) resolve();
    });
    child.on('exit', (code) => reject(new Error(`the worker ended with exit code ${code}`)));
  });
  return child;
}

/** Starts `turntable serve`, of this checkout or another place, on a free port and waits for its ready line. */
export async function serve(
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
  from: { readonly command: string; readonly cwd: string } = { command, cwd: packageRoot },
): Promise<ServingHost> {
  const { child, stdout, stderr } = startCommand(process.execPath, [from.command, 'serve', '--port', '0', ...words], {
    cwd: from.cwd,
    env: environment(env),
  });
  let complaints = '';
  stderr.on('data', (text: string) => {
    complaints += text;
  });
  const exited = new Promise<number | null>((resolve) => void child.on('exit', resolve));
  const url = await new Promise<string>((resolve, reject) => {
    createInterface(stdout).on('line', (line) => {
      const found = / is ready at (http:\S+)/.exec(line)?.[1];
      if (found !== undefined) resolve(found);
    });
    child.on('exit', (code) => reject(new Error(`the host ended with exit code ${code}: ${complaints}`)));
  });
  return {
    url,
    child,
    stderr: () => complaints,
    async end(signal = 'SIGTERM') {
      child.kill(signal);
      return await exited;
    },
  };
}
