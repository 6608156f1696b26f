/**
 * Properties of processes and threads alike, and of processes alone. The modules that run are written here, against
 * dist/.
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { getPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { runCommand } from '../../test/support/run-command.ts';
import { tensorOf } from '../tensor/index.ts';
import {
  askOnce,
  compiledModule,
  Server,
  startProcess,
  startThread,
  type NoAnswer,
  type Peer,
  type PeerEnd,
  type PlainFailure,
  type ProcessOptions,
  type ThreadOptions,
} from './index.ts';

const floor = compiledModule('./index.js', import.meta.url).href;

let folder: string;
let served: URL;
let servers: Server<Request>[] = [];

type Request =
  | { readonly op: 'echo' | 'fail' | 'block' | 'abort' | 'talk' | 'environment' | 'fill' | 'large' }
  | { readonly op: 'exit'; readonly code: number }
  | { readonly op: 'after'; readonly ms: number; readonly word: string }
  | { readonly op: 'count'; readonly by: number };

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-process-'));
  const source = `import { readFileSync } from 'node:fs';
import { serve } from ${JSON.stringify(floor)};
const waitForEver = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
const asksForHugePages = () => /^VmFlags:.* hg\\b/m.test(readFileSync('/proc/self/smaps', 'utf8'));
let count = 0;
serve(async (request, tensors, signal) => {
  switch (request.op) {
    case 'echo': return { answer: request, tensors };
    case 'fail': throw new Error('no idea');
    case 'block': waitForEver(); return { answer: null };
    case 'abort': return await new Promise((resolve) => signal.addEventListener('abort', () => resolve({ answer: 'told' })));
    case 'talk': console.log('first\\nsecond'); console.error('third'); return { answer: null };
    case 'environment': return { answer: Object.keys(process.env).sort() };
    case 'fill': { const all = []; for (;;) all.push(Array.from({ length: 10000 }, (_, index) => ({ index }))); }
    case 'large': { const block = new Uint8Array(2 ** 26); return { answer: asksForHugePages(block) }; }
    case 'exit': process.exit(request.code);
    case 'after': await new Promise((resolve) => setTimeout(resolve, request.ms)); return { answer: request.word };
    case 'count': Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20); return { answer: (count += request.by) };
  }
}, { inOrder: import.meta.url.endsWith('in-order.mjs') });
`;
  for (const name of ['served.mjs', 'in-order.mjs']) await writeFile(join(folder, name), source);
  served = pathToFileURL(join(folder, 'served.mjs'));
});
afterEach(async () => {
  for (const server of servers) server.end('the test is over');
  await Promise.all(servers.map(({ exited }) => exited));
  servers = [];
});
afterAll(() => rm(folder, { recursive: true, force: true }));

type Start = ConstructorParameters<typeof Server<Request>>[0];

class Failed extends Error {
  readonly end: PeerEnd | undefined;
  constructor({ failure, ended }: NoAnswer<PlainFailure>) {
    super(failure === undefined ? `gone: ${ended.reason}` : failure.message);
    this.end = ended;
  }
}

function track(server: Server<Request>): Server<Request> {
  servers.push(server);
  return server;
}

const options = { errorOf: (cause: NoAnswer<PlainFailure>) => new Failed(cause) };
const processPeer: Start = (events) => startProcess({ module: served }, events);
const threadPeer =
  (ends: ThreadOptions['ends'], module = () => served): Start =>
  (events) =>
    startThread({ module: module(), name: 'test', ends }, events);
const processServer = (more: Partial<ProcessOptions> = {}): Server<Request> =>
  track(new Server((events) => startProcess({ module: served, ...more }, events), options));

describe.each([
  ['a process', processPeer],
  ['a thread', threadPeer('at-once')],
])('%s', (_kind, startPeer) => {
  const start = (): Server<Request> => track(new Server(startPeer, options));

  test('answers a request, with tensors of any size in their order', async () => {
    const server = start();
    const tensors = [3, 200_000, 0].map((length, index) =>
      tensorOf(
        `t${index}`,
        'FP32',
        [length],
        Float32Array.from({ length }, (_, at) => at + index),
      ),
    );
    const reply = await server.ask({ op: 'echo' }, tensors);
    expect(reply.answer).toEqual({ op: 'echo' });
    expect(reply.tensors.map(({ name, shape }) => [name, shape])).toEqual(tensors.map((t) => [t.name, t.shape]));
    for (const [index, { data }] of reply.tensors.entries()) {
      expect(Buffer.compare(data, tensors[index]!.data)).toBe(0);
    }
  });

  test('answers each of many requests with its own answer, in whatever order they are done', async () => {
    const server = start();
    const words = Array.from({ length: 50 }, (_, index) => `word ${index}`);
    const order: string[] = [];
    const answers = await Promise.all(
      words.map(async (word, index) => {
        const { answer } = await server.ask<string>({ op: 'after', ms: (50 - index) * 2, word });
        order.push(word);
        return answer;
      }),
    );
    expect(answers).toEqual(words);
    expect(order).not.toEqual(words);
  });

  test('that fails at one request answers the next', async () => {
    const server = start();
    await expect(server.ask({ op: 'fail' })).rejects.toThrow('no idea');
    expect((await server.ask({ op: 'echo' })).answer).toEqual({ op: 'echo' });
  });

  test('is told when its client has gone', async () => {
    const server = start();
    const abort = new AbortController();
    const asked = server.ask({ op: 'abort' }, [], abort.signal);
    abort.abort();
    expect((await asked).answer).toBe('told');
  });

  test('that exits fails requests under way and later ones, saying how it ended', async () => {
    const server = start();
    const blocked = server.ask({ op: 'abort' });
    const exit = server.ask({ op: 'exit', code: 7 });
    await expect(blocked).rejects.toThrow(/^gone: it (exited with code 7|ended)$/);
    await expect(exit).rejects.toBeInstanceOf(Failed);
    await expect(server.ask({ op: 'echo' })).rejects.toBeInstanceOf(Failed);
    expect(server.isAlive).toBe(false);
  });

  test('that is ended fails requests under way with the reason', async () => {
    const server = start();
    await server.ask({ op: 'echo' });
    const blocked = server.ask({ op: 'block' });
    server.end('it was wanted');
    await expect(blocked).rejects.toThrow('gone: it was wanted');
    await server.exited;
  });

  test('for one request is gone once it has answered', async () => {
    const started: Peer<object>[] = [];
    const answer = await askOnce<object, Request>(
      (events) => {
        const peer = startPeer(events);
        started.push(peer);
        return peer;
      },
      { op: 'echo' },
      (cause) => new Failed(cause),
    );
    expect(answer).toEqual({ op: 'echo' });
    await started[0]!.exited;
  });
});

test('a thread that ends between messages answers its current message, and none behind it', async () => {
  const server = track(new Server<Request>(threadPeer('between-messages'), options));
  expect((await server.ask({ op: 'count', by: 1 })).answer).toBe(1);
  const first = server.ask<number>({ op: 'count', by: 1 });
  const later = Promise.allSettled(Array.from({ length: 5 }, () => server.ask<number>({ op: 'count', by: 1 })));
  server.end('enough');
  const firstOutcome = await first.then(
    ({ answer }) => answer,
    () => 'not begun',
  );
  expect([2, 'not begun']).toContain(firstOutcome);
  expect((await later).map(({ status }) => status)).toEqual(Array.from({ length: 5 }, () => 'rejected'));
  await server.exited;
});

test('a thread that serves in order begins with a request when the one before is answered', async () => {
  const inOrder = threadPeer('at-once', () => pathToFileURL(join(folder, 'in-order.mjs')));
  const server = track(new Server<Request>(inOrder, options));
  const order: string[] = [];
  const ask = async (ms: number, word: string): Promise<void> => {
    await server.ask({ op: 'after', ms, word });
    order.push(word);
  };
  await Promise.all([ask(50, 'long'), ask(0, 'short'), ask(20, 'middle')]);
  expect(order).toEqual(['long', 'short', 'middle']);
});

test('a server without requests for its idle time ends, and one that is asked in time does not', async () => {
  let ends: string | undefined;
  const server = track(
    new Server<Request>((events) => startProcess({ module: served }, events), {
      ...options,
      idleMsMax: 200,
      onEnd: ({ reason }) => (ends = reason),
    }),
  );
  await server.ask({ op: 'after', ms: 300, word: 'longer than idle' });
  await server.ask({ op: 'echo' });
  expect(ends).toBeUndefined();
  await expect.poll(() => ends).toBe('it had nothing to do');
});

describe('a process', () => {
  test('that takes longer than its limit is ended', async () => {
    const error = await processServer({ timeMsMax: 300 })
      .ask({ op: 'block' })
      .catch((failed: Failed) => failed);
    expect(error).toMatchObject({ message: 'gone: it took longer than 0.3 s', end: { isLate: true } });
  });

  test('whose heap is full says so before it goes', async () => {
    const error = await processServer({ heapMiBMax: 32 })
      .ask({ op: 'fill' })
      .catch((failed: Failed) => failed);
    expect(error).toMatchObject({ end: { reason: expect.stringContaining('heap out of memory') as string } });
  });

  test('that fails before it has begun ends with the words of its error', async () => {
    const module = pathToFileURL(join(folder, 'half-written.mjs'));
    await writeFile(module, 'import { join } from "node:path";\nexport function half() {');
    await expect(processServer({ module }).ask({ op: 'echo' })).rejects.toThrow(
      'gone: it exited with code 1: SyntaxError: Unexpected end of input',
    );
  });

  test.each([
    ['whose exit comes long after its socket closed ends by its exit', 300, /^gone: it was ended by SIGKILL$/],
    ['that lives on without its socket is ended', 60_000, /^gone: its socket (closed|failed)$/],
  ])('%s', async (_fact, livesMs, message) => {
    const module = pathToFileURL(join(folder, `lives-${livesMs}.mjs`));
    const end = "process.kill(process.pid, 'SIGKILL')";
    await writeFile(
      module,
      `import { closeSync } from 'node:fs';\ncloseSync(3);\nsetTimeout(() => ${end}, ${livesMs});`,
    );
    await expect(processServer({ module }).ask({ op: 'echo' })).rejects.toThrow(message);
  });

  test('that hangs is detected by its silence, and one that is merely busy is not', async () => {
    const working = processServer();
    await working.ask({ op: 'echo' });
    working.watch(200);
    await working.ask({ op: 'after', ms: 600, word: 'done' });
    const hung = processServer();
    await hung.ask({ op: 'echo' });
    hung.watch(200);
    const asked = hung.ask({ op: 'after', ms: 60_000, word: 'never' });
    process.kill(hung.pid, 'SIGSTOP');
    await expect(asked).rejects.toThrow('gone: it has not answered for 0.2 s');
    await hung.exited;
    expect(working.isAlive).toBe(true);
  });

  test('gives its output line by line to the log', async () => {
    const lines: string[] = [];
    const server = processServer({ log: (line) => lines.push(line) });
    await server.ask({ op: 'talk' });
    await expect.poll(() => lines.toSorted()).toEqual(['first', 'second', 'third']);
  });

  test('sees only the environment that it is given', async () => {
    const { answer } = await processServer({ environment: { LANG: 'C' } }).ask({ op: 'environment' });
    expect(answer).toEqual(['LANG', 'ORT_DISABLE_TELEMETRY']);
  });

  const modes = '/sys/kernel/mm/transparent_hugepage/enabled';
  const areGivenIfAsked = existsSync(modes) && readFileSync(modes, 'utf8').includes('[madvise]');
  test.runIf(areGivenIfAsked).each([
    { hugePages: true, tunables: undefined, asks: true },
    { hugePages: true, tunables: 'glibc.malloc.tcache_count=0', asks: true },
    { hugePages: true, tunables: 'glibc.malloc.hugetlb=0', asks: false },
    { hugePages: false, tunables: undefined, asks: false },
  ])('asks for huge pages for a large block if it is told to, and its operator allows it: %j', async (each) => {
    const { hugePages, tunables, asks } = each;
    const { answer } = await processServer({ hugePages, environment: { GLIBC_TUNABLES: tunables } }).ask({
      op: 'large',
    });
    expect(answer).toBe(asks);
  });

  test.each([
    { connects: false, sees: [] },
    { connects: true, sees: ['NODE_EXTRA_CA_CERTS'] },
  ])('reads the certificates for other machines only if it connects to them: $connects', async ({ connects, sees }) => {
    const environment = { NODE_EXTRA_CA_CERTS: join(folder, 'none.pem') };
    const { answer } = await processServer({ environment, connects }).ask({ op: 'environment' });
    expect(answer).toEqual([...sees, 'ORT_DISABLE_TELEMETRY']);
  });

  test('that cannot be started fails its requests', async () => {
    const missing = pathToFileURL(join(folder, 'not-there.mjs'));
    const server = track(new Server<Request>((events) => startProcess({ module: missing }, events), options));
    const error = await server.ask({ op: 'echo' }).catch((failed: Failed) => failed);
    expect(error).toMatchObject({
      message: expect.stringMatching(
        /^gone: it exited with code 1: Error: Cannot find module .*not-there\.mjs/,
      ) as string,
      end: { exitCode: 1 },
    });
  });

  test.skipIf(process.platform !== 'linux').each([
    [17, 17],
    // Tests run at 10: a process never goes before the one that started it.
    [5, getPriority()],
  ])('that is given a niceness of %i and a memory score has them, the niceness at least', async (given, niceness) => {
    const server = processServer({ niceness: given, memoryScore: 600 });
    await server.ask({ op: 'echo' });
    const stat = readFileSync(`/proc/${server.pid}/stat`, 'utf8');
    expect(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16]).toBe(String(niceness));
    expect(readFileSync(`/proc/${server.pid}/oom_score_adj`, 'utf8').trim()).toBe('600');
  });

  test('that its parent ends is not heard any more, whatever it had sent by then', async () => {
    const module = join(folder, 'thrice.mjs');
    await writeFile(
      module,
      `import { writeSync } from 'node:fs';
const frame = (json) => [json.length, 0, 0].map((size) => Buffer.from(Uint32Array.of(size).buffer)).concat(Buffer.from(json));
writeSync(3, Buffer.concat([1, 2, 3].flatMap((number) => frame(JSON.stringify({ number })))));
setInterval(() => undefined, 1000);
`,
    );
    const heard: number[] = [];
    const peer = startProcess<object, { readonly number: number }>(
      { module: pathToFileURL(module) },
      {
        message: ({ header }) => {
          heard.push(header.number);
          if (header.number === 2) peer.end('that is enough');
        },
        ended: () => undefined,
      },
    );
    await peer.exited;
    expect(heard).toEqual([1, 2]);
  });

  test('keeps its parent running while a request is under way, and not afterwards', async () => {
    const parentPath = join(folder, 'asks-once.mjs');
    await writeFile(
      parentPath,
      `import { Server, startProcess } from ${JSON.stringify(floor)};
const server = new Server((events) => startProcess({ module: new URL(${JSON.stringify(served.href)}) }, events), { errorOf: () => new Error() });
console.log((await server.ask({ op: 'after', ms: 50, word: 'answered' })).answer);
`,
    );
    expect(await runCommand(process.execPath, [parentPath])).toMatchObject({ exitCode: 0, stdout: 'answered\n' });
  });

  test.each(['SIGKILL', 'SIGTERM'] as const)(
    'that is inside of a call ends with the parent that is gone by %s',
    async (signal) => {
      const parentPath = join(folder, `parent-${signal}.mjs`);
      await writeFile(
        parentPath,
        `import { Server, startProcess } from ${JSON.stringify(floor)};
const server = new Server((events) => startProcess({ module: new URL(${JSON.stringify(served.href)}) }, events), { errorOf: () => new Error() });
await server.ask({ op: 'echo' });
server.ask({ op: 'block' }).catch(() => {});
console.log(server.pid);
`,
      );
      const parent = spawn(process.execPath, [parentPath], { stdio: ['ignore', 'pipe', 'inherit'] });
      const pid = Number(await new Promise<string>((resolve) => createInterface(parent.stdout).once('line', resolve)));
      expect(isRunning(pid)).toBe(true);
      parent.kill(signal);
      await expect.poll(() => isRunning(pid), { interval: 20 }).toBe(false);
    },
  );
});

describe('the address of a compiled module', () => {
  test('is in dist/ for a source file, and beside a compiled one', () => {
    const fromSource = compiledModule('./index.js', import.meta.url);
    expect(fromSource.pathname).toMatch(/\/dist\/process\/index\.js$/);
    expect(existsSync(fromSource)).toBe(true);
    expect(compiledModule('./index.js', fromSource.href).href).toBe(fromSource.href);
    expect(compiledModule('../cpu/index.js', import.meta.url).pathname).toMatch(/\/dist\/cpu\/index\.js$/);
  });
});

function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat[stat.lastIndexOf(')') + 2] !== 'Z';
  } catch {
    return false;
  }
}
