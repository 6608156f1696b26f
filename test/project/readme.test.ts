/** Runs the commands for newcomers in README.md and the first pages of docs/, and compares their output. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Handler, HandlerContext } from '../../src/cpu/index.ts';
import { packageRoot } from '../../src/host/config/options.ts';

interface Step {
  readonly command: string;
  /** Lines; `...` stands for anything, within a line or for any number of lines. */
  readonly shown: readonly string[];
}

const documentedUrl = 'http://127.0.0.1:8000';
const documentedFolder = '/tmp';
const [readme, operate, handlers, hybrid] = await Promise.all(
  ['README.md', 'docs/operate.md', 'docs/handlers.md', 'docs/hybrid.md'].map((page) =>
    readFile(join(packageRoot, page), 'utf8'),
  ),
);
const steps = [readme, operate, handlers, hybrid].flatMap((page) => stepsOf(page ?? ''));
const hostSteps = steps.filter(({ command }) => command !== 'npm ci' && command !== 'npm start');

/** With the blank processes of a host, which other tests do without. */
const { TURNTABLE_CPU_BLANK_INSTANCES: _, ...asShipped } = process.env;

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
    env: asShipped,
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
  it('the README is short, and shows a picture of the page and one of a cold start', () => {
    expect(readme?.split(/\s+/).length).toBeLessThan(900);
    expect(readme).toContain('](docs/dashboard/overview.png)');
    expect(readme).toContain('](docs/dashboard/cold-starts.png)');
  });

  it('the README begins with the two commands', () => {
    expect(steps.slice(0, 2).map(({ command }) => command)).toEqual(['npm ci', 'npm start']);
  });

  it('the README shows the line that the host prints when it is ready', () => {
    expect(normal(readyLine)).toBe(normal(steps[1]?.shown[0] ?? ''));
  });

  it('the README runs the command of this checkout without npx, which may build the project again first', () => {
    for (const { command } of steps) expect(command).not.toMatch(/\bnpx\b/);
    expect(stepsOf(readme ?? '').some(({ command }) => command.startsWith('node bin/turntable.js '))).toBe(true);
    expect(readme).toMatch(/write `turntable`\. In this checkout that is `node bin\/turntable\.js`/);
  });

  it('builds once: what npm runs on each link and installation leaves a fresh dist/ as it is', async () => {
    const built = join(packageRoot, 'dist', 'index.js');
    const before = await stat(built);
    expect((await run('npm run prepare')).code).toBe(0);
    expect((await stat(built)).mtimeMs).toBe(before.mtimeMs);
  });

  it.each(hostSteps)('$command prints what it shows', async ({ command, shown }) => {
    const here = command.replaceAll(documentedUrl, url).replaceAll(documentedFolder, folder);
    const { code, output } = await run(here.replace(/(^|\| )turntable /, '$1node bin/turntable.js '));
    expect(code, output).toBe(0);
    expect(normal(output)).toMatch(patternOf(shown));
  });
});

describe('the handler of handlers.md', () => {
  it('the handler of handlers.md is a valid handler for the compiler and at run time', async () => {
    const [, source = ''] = /^```ts\n([\s\S]*?)^```$/m.exec(handlers ?? '') ?? [];
    // Inside the package, so that 'turntable' is the package itself.
    const place = await mkdtemp(join(packageRoot, 'functions', '_readme-'));
    try {
      const path = join(place, 'handler.ts');
      await writeFile(
        path,
        `${source}\nconst typed: Handler = { preprocess, postprocess };\nexport default typed;\n`.replace(
          '{ HandlerCall',
          '{ Handler, HandlerCall',
        ),
      );
      await writeFile(
        join(place, 'tsconfig.json'),
        JSON.stringify({ extends: '../../tsconfig.json', include: ['*.ts'] }),
      );
      const compiled = await run(`node node_modules/typescript/bin/tsc -p ${place}`);
      expect(compiled.output).toBe('');
      const handler = (await import(path)) as Handler;
      const request = {
        method: 'POST',
        url: '/',
        headers: {},
        body: new Uint8Array(),
        text: () => '',
        json: () => [3, 1],
      };
      const alone = { invoke: vi.fn<HandlerContext['invoke']>(), call: vi.fn<HandlerContext['call']>() };
      expect(await handler.preprocess(request, alone)).toMatchObject([{ shape: [1, 2], data: [3, 1] }]);
      const output = { name: 'y', datatype: 'FP32', shape: [3], data: Float32Array.of(1, 9, 4) } as const;
      expect(handler.postprocess([output], request, alone)).toEqual({ best: 1 });
    } finally {
      await rm(place, { recursive: true, force: true });
    }
  });
});

/** The commands of all console blocks, each with the lines shown after it. */
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

/** Without parts that change from run to run: numbers, and the port. */
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
