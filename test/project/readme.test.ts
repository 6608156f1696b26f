/** Runs what README.md tells a newcomer to run, in its order, and compares what it prints with what README.md shows. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/host/config-options.ts';

interface Step {
  readonly command: string;
  /** Lines; `...` stands for anything, within a line or for any number of lines. */
  readonly shown: readonly string[];
}

const documentedUrl = 'http://127.0.0.1:8000';
const documentedFolder = '/tmp';
const text = await readFile(join(packageRoot, 'README.md'), 'utf8');
const steps = stepsOf(text);
const hostSteps = steps.filter(({ command }) => command !== 'npm ci' && command !== 'npm start');

let folder: string;
let host: ChildProcess;
let url: string;
let readyLine: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-readme-'));
  host = spawn('npm', ['start', '--', '--port', '0', '--data', join(folder, 'data')], {
    cwd: packageRoot,
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (host.stdout === null) throw new Error('no output');
  for await (const line of createInterface({ input: host.stdout })) {
    if (!line.includes('is ready at')) continue;
    readyLine = line;
    url = /http:\S+/.exec(line)?.[0] ?? '';
    break;
  }
});

afterAll(async () => {
  if (host?.pid !== undefined) {
    const ended = new Promise((resolve) => host.once('exit', resolve));
    process.kill(-host.pid, 'SIGTERM');
    await ended;
  }
  await rm(folder, { recursive: true, force: true });
});

describe('the README', () => {
  it('begins with the two commands', () => {
    expect(steps.slice(0, 2).map(({ command }) => command)).toEqual(['npm ci', 'npm start']);
  });

  it('shows the line that the host prints when it is ready', () => {
    expect(normal(readyLine)).toBe(normal(steps[1]?.shown[0] ?? ''));
  });

  it.each(hostSteps)('$command prints what it shows', async ({ command, shown }) => {
    const { code, output } = await run(command.replaceAll(documentedUrl, url).replaceAll(documentedFolder, folder));
    expect(code, output).toBe(0);
    expect(normal(output)).toMatch(patternOf(shown));
  });
});

/** The commands of all console blocks, each with the lines shown behind it. */
function stepsOf(markdown: string): Step[] {
  const found: Step[] = [];
  for (const [, block = ''] of markdown.matchAll(/^```console\n([\s\S]*?)^```$/gm)) {
    for (const part of block.split(/^\$ /m).slice(1)) {
      const [command = '', ...shown] = part.trimEnd().split('\n');
      found.push({ command, shown });
    }
  }
  return found;
}

async function run(command: string): Promise<{ code: number | null; output: string }> {
  const env = { ...process.env, TURNTABLE_URL: url, COLUMNS: '120' };
  const child = spawn('bash', ['-c', command], { cwd: packageRoot, env, stdio: ['ignore', 'pipe', 'ignore'] });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (output += chunk));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, output };
}

/** Without what changes from run to run: numbers, and the port of this run. */
function normal(output: string): string {
  return output
    .replaceAll('\r', '')
    .replaceAll(url, documentedUrl)
    .replaceAll(folder, documentedFolder)
    .trimEnd()
    .replaceAll(/\d+([.,]\d+)*(e-?\d+)?/g, '0')
    .replaceAll(/ +/g, ' ')
    .replaceAll(/0 (ms|s)\b/g, '0 time');
}

function patternOf(shown: readonly string[]): RegExp {
  const lines = shown.map((line) =>
    line.trim() === '...'
      ? String.raw`[\s\S]*?`
      : normal(line)
          .split('...')
          .map((part) => part.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`))
          .join('.*'),
  );
  return new RegExp(`^${lines.join(String.raw`\n?`)}$`);
}
