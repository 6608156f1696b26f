/** The restrictions of a process, checked with the kernel in a restricted process. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { canGoOffline } from './confine.ts';
import { compiledModule } from './module.ts';

const module = compiledModule('./index.js', import.meta.url).href;
const isLinux = process.platform === 'linux';

async function inProcess(script: string): Promise<unknown> {
  const text = `
    import { readFileSync } from 'node:fs';
    import { confine, goOffline } from ${JSON.stringify(module)};
    const outcome = async (work) => { try { await work(); return 'done'; } catch (error) { return error.code ?? error.message; } };
    ${script}`;
  const words = ['--input-type=module', '-e', text];
  const { stdout } = await promisify(execFile)(process.execPath, words);
  return JSON.parse(stdout) as unknown;
}

test.skipIf(!isLinux)('limits hold: no new privileges, no core file, so many files and so much memory', async () => {
  const found = await inProcess(`
    confine({ files: 64, memoryBytes: 2 ** 28 });
    const limits = readFileSync('/proc/self/limits', 'utf8');
    const [, privileges] = /NoNewPrivs:\\s+(\\d)/.exec(readFileSync('/proc/self/status', 'utf8'));
    const of = (name) => new RegExp('^' + name + ' +(\\\\S+)', 'm').exec(limits)[1];
    const { openSync } = await import('node:fs');
    const files = await outcome(() => { for (;;) openSync('/dev/null'); });
    const memory = await outcome(() => Buffer.alloc(3 * 2 ** 30).length);
    console.log(JSON.stringify({
      files, memory, core: of('Max core file size'), open: of('Max open files'), privileges,
    }));`);
  expect(found).toEqual({
    files: 'EMFILE',
    memory: expect.stringMatching(/alloc/i) as string,
    core: '0',
    open: '64',
    privileges: '1',
  });
});

test.skipIf(!canGoOffline())(
  'offline, there are no connections and no processes, and threads and files as before',
  async () => {
    const found = await inProcess(`
    import { spawn } from 'node:child_process';
    import { connect, createServer } from 'node:net';
    import { Worker } from 'node:worker_threads';
    import { once } from 'node:events';
    const open = createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1');
    await once(open, 'listening');
    const { port } = open.address();
    const reach = (to) => outcome(async () => {
      await new Promise((resolve, reject) => connect(to).on('connect', resolve).on('error', reject));
    });
    const start = () => outcome(async () => {
      await new Promise((resolve, reject) => spawn(process.execPath, ['-e', '0']).on('exit', resolve).on('error', reject));
    });
    const before = await reach({ port, host: '127.0.0.1' });
    const filtered = goOffline();
    const thread = await outcome(async () => { await once(new Worker('0', { eval: true }), 'exit'); });
    const after = {
      ipv4: await reach({ port, host: '127.0.0.1' }), ipv6: await reach({ port, host: '::1' }), process: await start(),
      thread, file: await outcome(() => readFileSync('/proc/self/status')),
    };
    console.log(JSON.stringify({ before, filtered, ...after }));
    process.exit();`);
    expect(found).toEqual({
      before: 'done',
      filtered: true,
      ipv4: 'EPERM',
      ipv6: 'EPERM',
      process: 'EPERM',
      thread: 'done',
      file: 'done',
    });
  },
);
