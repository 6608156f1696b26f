/** Runs the `turntable` command as a user does: compiled, and in its own process. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { packageRoot } from '../../src/host/config-options.ts';

const command = join(packageRoot, 'bin', 'turntable.js');

/** Without the user's settings for their own host, but with those of vitest.config.ts. */
function environment(extra: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('TURNTABLE_') || name === 'TURNTABLE_CPU_BLANK_INSTANCES',
  );
  return { ...Object.fromEntries(kept), ...extra };
}

export interface Outcome {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export async function turntable(
  words: readonly string[],
  options: { readonly env?: Readonly<Record<string, string>>; readonly cwd?: string; readonly input?: string } = {},
): Promise<Outcome> {
  return await new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      [command, ...words],
      { env: environment(options.env ?? {}), cwd: options.cwd ?? packageRoot, maxBuffer: 2 ** 26 },
      (_error, stdout, stderr) => resolve({ exitCode: child.exitCode, stdout, stderr }),
    );
    child.stdin?.end(options.input ?? '');
  });
}

export interface ServingHost {
  readonly url: string;
  readonly child: ChildProcess;
  /** Its output to standard error so far. */
  stderr(): string;
  /** Sends a signal and returns the exit code. */
  end(signal?: NodeJS.Signals): Promise<number | null>;
}

/** Starts `turntable serve`, of this checkout or another place, on a free port and waits for its ready line. */
export async function serve(
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
  from: { readonly command: string; readonly cwd: string } = { command, cwd: packageRoot },
): Promise<ServingHost> {
  const child = spawn(process.execPath, [from.command, 'serve', '--port', '0', ...words], {
    cwd: from.cwd,
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const exited = once(child, 'exit') as Promise<[number | null]>;
  const url = await new Promise<string>((resolve, reject) => {
    createInterface(child.stdout).on('line', (line) => {
      const found = / is ready at (http:\S+)/.exec(line)?.[1];
      if (found !== undefined) resolve(found);
    });
    child.once('exit', (code) => reject(new Error(`the host ended with exit code ${code}: ${stderr}`)));
  });
  return {
    url,
    child,
    stderr: () => stderr,
    async end(signal = 'SIGTERM') {
      child.kill(signal);
      return (await exited)[0];
    },
  };
}
