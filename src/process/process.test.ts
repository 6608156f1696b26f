/**
 * Properties of processes and threads alike, and of processes alone. The modules that run are written here, against
 * dist/.
 */
import { spawn } from 'node:child_process';
import fc from 'fast-check';
import { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { getPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { runCommand } from '../../test/support/run-command.ts';
import { tensorOf, type Tensor } from '../tensor/index.ts';
import {
  callOnce,
  compiledModule,
  GoneError,
  OnDemand,
  Remote,
  type RemoteOptions,
  type WithTensors,
} from './index.ts';
import { startProcess, type ProcessOptions } from './child.ts';
import type { ThreadOptions } from './thread.ts';

const floor = compiledModule('./index.js', import.meta.url).href;

let folder: string;
let served: URL;
let remotes: Remote<Api>[] = [];

interface Api {
  echo(order?: unknown): unknown;
  carry(order: string, tensors: readonly Tensor[]): WithTensors<string>;
  fail(): void;
  failAs(order: { readonly code: string }): void;
  block(): void;
  hear(): string;
  talk(): void;
  environment(): string[];
  fill(): void;
  large(): boolean;
  exit(order: { readonly code: number }): void;
  /** Dies in the middle of a call: before, or after, a note or a part of the answer. */
  die(order: { readonly at: 'first' | 'note' | 'half' }): void;
  /** Reads its tensors where they are, as `run` of the GPU process does. */
  dieCarrying(order: { readonly at: string }, tensors: readonly Tensor[]): WithTensors<string>;
  after(order: { readonly ms: number; readonly word: string }): string;
  count(order: { readonly by: number }): number;
  noteLate(): void;
  function(): unknown;
}

/** Crosses with its field. */
class CodedError extends Error {
  readonly code: string;
  constructor(code: string) {
    super('no idea');
    this.code = code;
  }
  get isBad(): boolean {
    return this.code === 'bad';
  }
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-process-'));
  const source = `import { readFileSync, writeSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import { serve, WithTensors } from ${JSON.stringify(floor)};
const forEver = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const asksForHugePages = () => /^VmFlags:.* hg\\b/m.test(readFileSync('/proc/self/smaps', 'utf8'));
const die = () => isMainThread ? process.kill(process.pid, 'SIGKILL') : process.exit(9);
class CodedError extends Error {
  constructor(code) { super('no idea'); this.code = code; }
}
let count = 0;
serve({
  echo: (order) => order,
  carry: (order, { tensors }) => new WithTensors(order, tensors),
  fail: () => { throw new TypeError('no idea'); },
  failAs: ({ code }) => { throw new CodedError(code); },
  block: forEver,
  hear: (_, { signal }) => new Promise((resolve) => signal.addEventListener('abort', () => resolve('told'))),
  talk: () => { console.log('first\\nsecond'); console.error('third'); },
  environment: () => Object.keys(process.env).sort(),
  fill: () => { const all = []; for (;;) all.push(Array.from({ length: 10000 }, (_, index) => ({ index }))); },
  large: () => { const block = new Uint8Array(2 ** 26); return asksForHugePages(block); },
  exit: ({ code }) => process.exit(code),
  die: async ({ at }, { note }) => {
    if (at === 'note') { note(); await later(20); }
    if (at === 'half' && isMainThread) writeSync(3, Buffer.from([40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 123]));
    die();
    await later(60_000);
  },
  dieCarrying: async ({ at }, { tensors, note }) => {
    if (at === 'before it has read the tensors') die();
    const copy = Uint8Array.from(tensors[0].data);
    if (at === 'when it has read them') die();
    if (at === 'after a note') { note(); die(); }
    // It says that 3 MiB are in the memory, and ends in its header.
    if (at === 'in the middle of its answer') {
      writeSync(3, Buffer.from([40, 0, 0, 128, 8, 0, 0, 0, 0, 0, 0, 0, 123]));
      die();
    }
    if (at === 'in the middle of tensors that have no room there') {
      const header = JSON.stringify({ id: -1, out: at });
      const [prefix, begin] = [Buffer.alloc(12), Buffer.alloc(1000)];
      prefix.writeUInt32LE(header.length, 0);
      prefix.writeUInt32LE(20_000_000, 4);
      writeSync(3, Buffer.concat([prefix, Buffer.from(header), begin]));
      die();
    }
    const carried = [{ ...tensors[0], data: copy }];
    return new WithTensors(at, carried, at === 'when its answer is written' ? die : undefined);
  },
  after: async ({ ms, word }) => { await later(ms); return word; },
  count: ({ by }) => { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20); return (count += by); },
  noteLate: (_, { note }) => void setImmediate(note),
  function: () => () => undefined,
}, { errors: { CodedError }, lent: ['dieCarrying'] });
`;
  served = pathToFileURL(join(folder, 'served.mjs'));
  await writeFile(served, source);
  await writeFile(join(folder, 'broken.mjs'), 'throw new Error("it never began");');
});
afterEach(async () => {
  await Promise.all(remotes.map((remote) => remote.end('the test is over')));
  remotes = [];
});
afterAll(() => rm(folder, { recursive: true, force: true }));

type Kind = 'process' | 'process that shares memory' | 'thread';
type More = Partial<Omit<RemoteOptions, 'process' | 'thread'>>;

function optionsOf(kind: Kind, more: More = {}, module = served): RemoteOptions {
  const shared = { what: 'the child', errors: { CodedError }, ...more };
  return kind === 'thread'
    ? { ...shared, thread: { module, name: 'test', ends: 'at-once' } }
    : { ...shared, process: { module, sharesTensors: kind !== 'process' } };
}

function track(options: RemoteOptions): Remote<Api> {
  const remote = new Remote<Api>(options);
  remotes.push(remote);
  return remote;
}

const processRemote = (process: Partial<ProcessOptions> = {}, more: More = {}): Remote<Api> =>
  track({ what: 'the child', ...more, process: { module: served, ...process } });

const errorOf = async (call: Promise<unknown>): Promise<unknown> => await call.catch((error: unknown) => error);

describe.each(['process', 'process that shares memory', 'thread'] as const)('a %s', (kind) => {
  const start = (more?: More, module?: URL): Remote<Api> => track(optionsOf(kind, more, module));

  test('answers a call, with tensors of any size in their order', async () => {
    const tensors = [3, 200_000, 0].map((length, index) =>
      tensorOf(
        `t${index}`,
        'FP32',
        [length],
        Float32Array.from({ length }, (_, at) => at + index),
      ),
    );
    const reply = await start().exchange('carry', 'word', { tensors });
    expect(reply.answer).toBe('word');
    expect(reply.tensors.map(({ name, shape }) => [name, shape])).toEqual(tensors.map((t) => [t.name, t.shape]));
    for (const [index, { data }] of reply.tensors.entries()) {
      expect(Buffer.compare(data, tensors[index]!.data)).toBe(0);
    }
  });

  test('answers each of many calls with its own answer, in whatever order they are done', async () => {
    const remote = start();
    const words = Array.from({ length: 50 }, (_, index) => `word ${index}`);
    const order: string[] = [];
    const answers = await Promise.all(
      words.map(async (word, index) => {
        const answer = await remote.call('after', { ms: (50 - index) * 2, word });
        order.push(word);
        return answer;
      }),
    );
    expect(answers).toEqual(words);
    expect(order).not.toEqual(words);
  });

  test('that is called in order begins with a call when it has answered the one before', async () => {
    const remote = start({ inOrder: true });
    const order: string[] = [];
    const call = async (ms: number, word: string): Promise<void> => {
      expect(await remote.call('after', { ms, word })).toBe(word);
      order.push(word);
    };
    const failed = errorOf(remote.call('fail'));
    await Promise.all([call(50, 'long'), call(0, 'short'), call(20, 'middle')]);
    expect(order).toEqual(['long', 'short', 'middle']);
    expect(await failed).toMatchObject({ message: 'no idea' });
  });

  test('that fails at one call answers the next; an unknown error keeps its name', async () => {
    const remote = start();
    expect(await errorOf(remote.call('fail'))).toMatchObject({ name: 'TypeError', message: 'no idea' });
    expect(await remote.call('echo', 'word')).toBe('word');
  });

  test('an error of a class that both sides know is one of that class, with its fields', async () => {
    const error = await errorOf(start().call('failAs', { code: 'bad' }));
    expect(error).toBeInstanceOf(CodedError);
    expect(error).toMatchObject({ message: 'no idea', code: 'bad', isBad: true });
  });

  test('that ends has the error that its caller makes of it, like any other error', async () => {
    const remote = start({ errorOf: ({ name, message }) => new RangeError(`${name}: ${message}`) });
    await expect(remote.call('fail')).rejects.toThrow(new RangeError('TypeError: no idea'));
    void remote.end('it was wanted');
    await expect(remote.call('echo')).rejects.toThrow(new RangeError('GoneError: the child is gone: it was wanted'));
  });

  test('answers undefined for nothing, and an unknown method is an error', async () => {
    const remote = start();
    expect(await remote.call('echo')).toBeUndefined();
    await expect(remote.call('missing' as 'echo')).rejects.toThrow('is not a function');
  });

  test('that notes something after its answer tells the next call nothing', async () => {
    const remote = start();
    await remote.call('noteLate');
    const onNote = vi.fn<() => void>();
    expect(await remote.call('after', { ms: 20, word: 'done' }, { onNote })).toBe('done');
    expect(onNote).not.toHaveBeenCalled();
  });

  test('is told when its caller has gone', async () => {
    const abort = new AbortController();
    const asked = start().call('hear', undefined, { cancel: abort.signal });
    abort.abort();
    expect(await asked).toBe('told');
  });

  test.each<readonly [string, (remote: Remote<Api>) => Promise<unknown>]>([
    ['at the begin of a call', (remote) => remote.call('die', { at: 'first' })],
    ['after a note', (remote) => remote.call('die', { at: 'note' })],
    ['in the middle of an answer', (remote) => remote.call('die', { at: 'half' })],
    [
      'while another call is under way',
      (remote) => (void errorOf(remote.call('exit', { code: 7 })), remote.call('hear')),
    ],
    ['between two calls', (remote) => errorOf(remote.call('exit', { code: 7 })).then(() => remote.call('echo'))],
    ['with calls that it has not begun', (remote) => (void errorOf(remote.call('block')), killed(remote))],
  ])('that dies %s fails the call with how it ended', async (_moment, call) => {
    for (const inOrder of [false, true]) {
      const remote = start({ inOrder });
      await remote.call('echo');
      const error = await errorOf(call(remote));
      expect(error).toBeInstanceOf(GoneError);
      const { message, end } = error as GoneError;
      expect(message).toBe(`the child is gone: ${end.reason}`);
      expect(end.reason).toMatch(/^it (exited with code \d+|was ended by SIGKILL|ended|was wanted)/);
      expect(remote.isAlive).toBe(false);
      await expect(remote.call('echo')).rejects.toBeInstanceOf(GoneError);
      await remote.exited;
    }
  });

  test('that fails before it has begun fails its calls with the words of its error', async () => {
    const remote = start({}, pathToFileURL(join(folder, 'broken.mjs')));
    const calls = await Promise.all([errorOf(remote.call('echo')), errorOf(remote.call('fail'))]);
    for (const error of calls) expect(error).toMatchObject({ name: 'GoneError', message: /it never began/ });
    await remote.exited;
  });

  test('that is ended fails calls under way with the reason, also before it has begun', async () => {
    const begun = start();
    await begun.call('echo');
    for (const remote of [begun, start()]) {
      const blocked = remote.call('block');
      void remote.end('it was wanted');
      await expect(blocked).rejects.toThrow('the child is gone: it was wanted');
      await remote.exited;
    }
  });

  test('that takes longer than the limit of a call is ended', async () => {
    const error = await errorOf(start().call('block', undefined, { timeMsMax: 300 }));
    expect(error).toMatchObject({
      message: 'the child is gone: it took longer than 0.3 s',
      end: { isLate: true },
    });
  });

  test('is ended when a call is stopped, at once or later, and not by a signal after its answer', async () => {
    await expect(start().call('block', undefined, { stop: AbortSignal.abort() })).rejects.toThrow('it was stopped');
    const remote = start();
    const stop = new AbortController();
    await remote.call('echo', 'word', { stop: stop.signal, timeMsMax: 60_000 });
    stop.abort();
    const next = new AbortController();
    expect(await remote.call('echo', 'word')).toBe('word');
    const blocked = remote.call('block', undefined, { stop: next.signal });
    next.abort();
    await expect(blocked).rejects.toThrow('it was stopped');
  });

  test('for one call is gone once it has answered, or failed', async () => {
    const ends: string[] = [];
    const options = optionsOf(kind, { onEnd: ({ reason }) => ends.push(reason) });
    expect(await callOnce<Api, 'echo'>(options, 'echo', 'word')).toBe('word');
    await expect(callOnce<Api, 'fail'>(options, 'fail')).rejects.toThrow('no idea');
    expect(ends).toEqual(['it has answered', 'it has answered']);
  });

  test('on demand starts with the first call, and again after its end', async () => {
    const demanded = new OnDemand<Api>(optionsOf(kind));
    expect(demanded.isRunning).toBe(false);
    const first = demanded.running;
    remotes.push(first);
    expect(await demanded.running.call('echo', 'word')).toBe('word');
    expect(demanded.running).toBe(first);
    await expect(demanded.running.call('die', { at: 'first' })).rejects.toBeInstanceOf(GoneError);
    expect(await demanded.running.call('echo', 'word')).toBe('word');
    expect(demanded.running).not.toBe(first);
    await demanded.end('the test is over');
    expect(demanded.isRunning).toBe(false);
  });
});

/** A call behind another that never ends, whose child is then killed. */
async function killed(remote: Remote<Api>): Promise<unknown> {
  const behind = remote.call('echo');
  if (remote.pid === process.pid) void remote.end('it was wanted');
  else process.kill(remote.pid, 'SIGKILL');
  return await behind;
}

/** Mappings of this process that a child shares, or shared. */
const sharedMappings = (): number =>
  readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .filter((line) => line.includes('memfd:turntable-tensors')).length;

const times = (count: number, of: (index: number) => Promise<void>): Promise<void>[] =>
  Array.from({ length: count }, (_, index) => of(index));

/** Steps of a call's tensors through shared memory, at which the process is killed. */
const steps = [
  // By the host, which does not know it yet when it leases memory for the call.
  'before the call is sent',
  'when the call was sent',
  // By itself.
  'before it has read the tensors',
  'when it has read them',
  'after a note',
  'in the middle of its answer',
  'in the middle of tensors that have no room there',
  'when its answer is written',
  // By the host, which has copied the answer.
  'when the answer was taken',
] as const;

test.each(steps)(
  'a process that shares memory and is killed %s fails its own calls alone, and leaves no memory',
  async (at) => {
    const number = fc.nat({ max: 6 });
    const property = fc.asyncProperty(number, number, async (answered, behind) => {
      const before = sharedMappings();
      let heldBytes = 0;
      const answers = { grow: (bytes: number) => void (heldBytes += bytes) };
      const [remote, neighbour] = [1, 2].map(() => processRemote({ sharesTensors: true }, { answers })) as [
        Remote<Api>,
        Remote<Api>,
      ];
      // Five fit: others go through the socket.
      const bytes = 3 * 2 ** 20 + answered;
      const tensorsOf = (first: number): Tensor[] => [
        tensorOf('t', 'UINT8', [bytes], new Uint8Array(bytes).fill(first)),
      ];
      const wrong: number[] = [];
      const read: (() => void)[] = [];
      const carry = async (to: Remote<Api>, first: number, step?: (typeof steps)[number]): Promise<void> => {
        const tensors = tensorsOf(first);
        const reply = await (step === undefined
          ? to.exchange('carry', `${first}`, { tensors })
          : to.exchange('dieCarrying', { at: step }, { tensors }));
        // Looked at again when the memory is gone.
        read.push(() => {
          if (Buffer.compare(reply.tensors[0]!.data, tensors[0]!.data) !== 0) wrong.push(first);
        });
        read.at(-1)!();
        if (step === 'when the answer was taken') process.kill(to.pid, 'SIGKILL');
      };
      await Promise.all(times(answered, (index) => carry(remote, index)));
      await neighbour.call('echo');
      if (at === 'before the call is sent') process.kill(remote.pid, 'SIGKILL');
      const own = [carry(remote, 100, at), ...times(behind, (index) => carry(remote, 101 + index))];
      if (at === 'when the call was sent') process.kill(remote.pid, 'SIGKILL');
      const others = times(behind + 1, (index) => carry(neighbour, 200 + index));
      const failures = (await Promise.allSettled(own)).flatMap((outcome): unknown[] =>
        outcome.status === 'rejected' ? [outcome.reason] : [],
      );
      expect(failures.filter((error) => !(error instanceof GoneError))).toEqual([]);
      await Promise.all(others);
      await expect(remote.call('echo')).rejects.toBeInstanceOf(GoneError);
      expect(await neighbour.call('echo', 'still there')).toBe('still there');
      await Promise.all([remote.exited, neighbour.end('the test is over')]);
      await remote.end('the test is over');
      for (const look of read) look();
      expect({ wrong, heldBytes, mappings: sharedMappings() }).toEqual({ wrong: [], heldBytes: 0, mappings: before });
    });
    await fc.assert(property, { seed: Number(process.env['TURNTABLE_SEED'] ?? 1), numRuns: 2 });
  },
);

test('a process that shares memory, ended by its host at any answer, fails the calls behind it alone, and leaves no memory', async () => {
  const number = fc.nat({ max: 6 });
  const property = fc.asyncProperty(number, number, async (answers, more) => {
    const before = sharedMappings();
    const remote = processRemote({ sharesTensors: true });
    const bytes = 3 * 2 ** 20 + answers;
    let answered = 0;
    const calls = Array.from({ length: answers + more + 1 }, async (_, call) => {
      const data = new Uint8Array(bytes).fill(call + 1);
      const reply = await remote.exchange('carry', `${call}`, { tensors: [tensorOf('t', 'UINT8', [bytes], data)] });
      answered++;
      if (answered === answers + 1) void remote.end('it was wanted');
      expect(reply.answer).toBe(`${call}`);
      // The memory is gone, or another's, and the answer is not.
      expect(Buffer.compare(reply.tensors[0]!.data, data)).toBe(0);
    });
    const outcomes = await Promise.allSettled(calls);
    const failures = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []));
    expect(failures.filter((error) => !(error instanceof GoneError))).toEqual([]);
    expect(outcomes.filter(({ status }) => status === 'fulfilled').length).toBeGreaterThan(answers);
    await remote.exited;
    expect(sharedMappings()).toBe(before);
  });
  await fc.assert(property, { seed: Number(process.env['TURNTABLE_SEED'] ?? 1), numRuns: 4 });
});

test('a process that shares memory gives none of it to the processes that it starts', async () => {
  const remote = processRemote({ sharesTensors: true });
  await remote.call('echo');
  const open = (await readdir(`/proc/${remote.pid}/fd`)).map((fd) => readlinkSync(`/proc/${remote.pid}/fd/${fd}`));
  expect(open.filter((name) => name.includes('turntable-tensors'))).toEqual([]);
});

test('an answer that cannot cross to a thread is an error', async () => {
  await expect(track(optionsOf('thread')).call('function')).rejects.toThrow('could not be cloned');
});

test.each([false, true])(
  'like calls, one after the other, have like headers, where they are answered in order: %s',
  async (inOrder) => {
    const remote = processRemote({}, { inOrder });
    await remote.call('echo');
    const sent: Buffer[] = [];
    const send: Socket['write'] = Reflect.get(Socket.prototype, 'write');
    const write = vi.spyOn(Socket.prototype, 'write').mockImplementation(function (this: Socket, ...given: unknown[]) {
      // The next frame may be written over this one.
      sent.push(Buffer.from(given[0] as Uint8Array));
      return Reflect.apply(send, this, given) as boolean;
    });
    for (let count = 0; count < 3; count++) await remote.call('echo', { key: 'f@1' });
    write.mockRestore();
    const frames = sent.filter((frame) => frame.includes('"op":"echo"'));
    expect(frames).toHaveLength(3);
    expect(new Set(frames.map((frame) => frame.toString('latin1'))).size).toBe(1);
    // The 12 bytes in front of a frame, and its text, which is filled up to a multiple of 8 bytes.
    expect(frames.map(({ byteLength }) => byteLength)).toEqual(frames.map(() => 12 + (inOrder ? 36 : 44)));
  },
);

test.each([false, true])(
  'a thread that ends between messages answers its current call, and none behind it',
  async (inOrder) => {
    const thread: ThreadOptions = { module: served, name: 'test', ends: 'between-messages' };
    const remote = track({ what: 'the child', inOrder, thread });
    expect(await remote.call('count', { by: 1 })).toBe(1);
    const first = remote.call('count', { by: 1 }).catch(() => 'not begun');
    const later = Promise.allSettled(Array.from({ length: 5 }, () => remote.call('count', { by: 1 })));
    void remote.end('enough');
    expect([2, 'not begun']).toContain(await first);
    expect((await later).map(({ status }) => status)).toEqual(Array.from({ length: 5 }, () => 'rejected'));
    await remote.exited;
  },
);

test('a child without calls for its idle time ends, and one that is called in time does not', async () => {
  let ends: string | undefined;
  const remote = processRemote({}, { idleMsMax: 200, onEnd: ({ reason }) => (ends = reason) });
  await remote.call('after', { ms: 300, word: 'longer than idle' });
  await remote.call('echo');
  expect(ends).toBeUndefined();
  await expect.poll(() => ends).toBe('it had nothing to do');
});

describe('a process', () => {
  test('whose answer has no room drops it, as of its first bytes, and answers the next call', async () => {
    let held = 0;
    let most = 6_000_000;
    const grown: number[] = [];
    const full = new RangeError('no room');
    const answers = {
      grow: (bytes: number) => {
        if (held + bytes > most) throw full;
        held += bytes;
        grown.push(bytes);
      },
    };
    const remote = track(
      optionsOf('process', { answers, errorOf: (error) => new Error('of the call', { cause: error }) }),
    );
    const tensors = [tensorOf('x', 'UINT8', [4_000_000], new Uint8Array(4_000_000).fill(7))];
    expect((await remote.exchange('carry', 'word', { tensors })).tensors[0]!.data[3_999_999]).toBe(7);
    expect(grown).toEqual([expect.any(Number), -grown[0]!]);
    expect(grown[0]).toBeGreaterThan(4_000_000);
    most = 3_000_000;
    await expect(remote.exchange('carry', 'word', { tensors })).rejects.toBe(full);
    most = 6_000_000;
    expect((await remote.exchange('carry', 'again', { tensors })).answer).toBe('again');
    expect([held, grown.length]).toEqual([0, 4]);
  });

  test('whose heap is full says so before it goes', async () => {
    const error = await errorOf(processRemote({ heapMiBMax: 32 }).call('fill'));
    expect(error).toMatchObject({ end: { reason: expect.stringContaining('heap out of memory') as string } });
  });

  test('that fails before it has begun ends with the words of its error', async () => {
    const module = pathToFileURL(join(folder, 'half-written.mjs'));
    await writeFile(module, 'import { join } from "node:path";\nexport function half() {');
    await expect(processRemote({ module }).call('echo')).rejects.toThrow(
      'the child is gone: it exited with code 1: SyntaxError: Unexpected end of input',
    );
  });

  test.each([
    [
      'whose exit comes long after its socket closed ends by its exit',
      300,
      /^the child is gone: it was ended by SIGKILL$/,
    ],
    ['that lives on without its socket is ended', 60_000, /^the child is gone: its socket (closed|failed)$/],
  ])('%s', async (_fact, livesMs, message) => {
    const module = pathToFileURL(join(folder, `lives-${livesMs}.mjs`));
    const end = "process.kill(process.pid, 'SIGKILL')";
    await writeFile(
      module,
      `import { closeSync } from 'node:fs';\ncloseSync(3);\nsetTimeout(() => ${end}, ${livesMs});`,
    );
    await expect(processRemote({ module }).call('echo')).rejects.toThrow(message);
  });

  test('that hangs is detected by its silence, and one that is merely busy is not', async () => {
    const working = processRemote();
    await working.call('echo');
    working.watch(200);
    await working.call('after', { ms: 600, word: 'done' });
    const hung = processRemote();
    await hung.call('echo');
    hung.watch(200);
    const asked = hung.call('after', { ms: 60_000, word: 'never' });
    process.kill(hung.pid, 'SIGSTOP');
    await expect(asked).rejects.toThrow('the child is gone: it has not answered for 0.2 s');
    await hung.exited;
    expect(working.isAlive).toBe(true);
  });

  test('gives its output line by line to the log', async () => {
    const lines: string[] = [];
    const server = processRemote({ log: (line) => lines.push(line) });
    await server.call('talk');
    await expect.poll(() => lines.toSorted()).toEqual(['first', 'second', 'third']);
  });

  test('sees only the environment that it is given', async () => {
    const answer = await processRemote({ environment: { LANG: 'C' } }).call('environment');
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
    const answer = await processRemote({ hugePages, environment: { GLIBC_TUNABLES: tunables } }).call('large');
    expect(answer).toBe(asks);
  });

  test.each([
    { connects: false, sees: [] },
    { connects: true, sees: ['NODE_EXTRA_CA_CERTS'] },
  ])('reads the certificates for other machines only if it connects to them: $connects', async ({ connects, sees }) => {
    const environment = { NODE_EXTRA_CA_CERTS: join(folder, 'none.pem') };
    const answer = await processRemote({ environment, connects }).call('environment');
    expect(answer).toEqual([...sees, 'ORT_DISABLE_TELEMETRY']);
  });

  test('whose module is missing fails its calls', async () => {
    const missing = pathToFileURL(join(folder, 'not-there.mjs'));
    expect(await errorOf(processRemote({ module: missing }).call('echo'))).toMatchObject({
      message: expect.stringMatching(
        /^the child is gone: it exited with code 1: Error: Cannot find module .*not-there\.mjs/,
      ) as string,
      end: { exitCode: 1 },
    });
  });

  test.skipIf(process.platform !== 'linux').each([
    [17, 17],
    // Tests run at 10: a process never goes before the one that started it.
    [5, getPriority()],
  ])('that is given a niceness of %i and a memory score has them, the niceness at least', async (given, niceness) => {
    const server = processRemote({ niceness: given, memoryScore: 600 });
    await server.call('echo');
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
      `import { Remote } from ${JSON.stringify(floor)};
const remote = new Remote({ what: 'the child', process: { module: new URL(${JSON.stringify(served.href)}) } });
console.log(await remote.call('after', { ms: 50, word: 'answered' }));
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
        `import { Remote } from ${JSON.stringify(floor)};
const remote = new Remote({ what: 'the child', process: { module: new URL(${JSON.stringify(served.href)}) } });
await remote.call('echo');
remote.call('block').catch(() => {});
console.log(remote.pid);
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
