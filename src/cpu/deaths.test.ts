/** A function that kills its processes gets two, and no third. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { bodyOf, poolLimits, requestOf, TestPools } from '../../test/support/cpu-pools.ts';
import { waitLimitMs } from '../../test/time-limits.ts';
import { ElementType, GraphBuilder, writeModel } from '../onnx/index.ts';
import { tensorOf } from '../tensor/index.ts';
import type { CpuPools, CpuPoolsOptions, GivenUp, InstanceSpec, PoolLimits, Stopped } from './index.ts';

const on = new TestPools();
/** Of each test: what the pools told, and the processes that were spent. */
const given: GivenUp[] = [];
let onGiven: (() => void) | undefined;
const stops: [key: string, stopped: Stopped][] = [];

function start(options: Partial<CpuPoolsOptions> = {}): CpuPools {
  given.length = stops.length = 0;
  return on.start({
    onGivenUp: (each) => {
      given.push(each);
      onGiven?.();
    },
    onStopped: (key, stopped) => stops.push([key, stopped]),
    ...options,
  });
}

let handlers = 0;

/** A handler that does what a request's text says, and writes the process's number into a file first. */
async function killer(beginning = ''): Promise<{ handlerPath: string; spent: () => number }> {
  const name = `killer-${handlers++}`;
  const pids = join(on.folder, `${name}.pids`);
  const handlerPath = await on.handler(
    name,
    `import { appendFileSync, existsSync, writeFileSync } from 'node:fs';
     appendFileSync(${JSON.stringify(pids)}, process.pid + '\\n');
     ${beginning}
     export async function preprocess(request) {
       const [what, rest] = request.text().split(' ');
       if (what.startsWith('SIG')) { process.kill(process.pid, what); await new Promise(() => undefined); }
       if (what === 'exit') process.exit(Number(rest));
       if (what === 'throw') { setImmediate(() => { throw new Error('stray'); }); await new Promise(() => undefined); }
       if (what === 'hang') for (;;);
       if (what === 'once' && !existsSync(rest)) { writeFileSync(rest, ''); process.kill(process.pid, 'SIGSEGV'); }
       if (what === 'later') setImmediate(() => process.kill(process.pid, 'SIGSEGV'));
       return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
     }
     export function postprocess() { return 'ok'; }`,
  );
  const spent = (): number => (existsSync(pids) ? new Set(readFileSync(pids, 'utf8').trim().split('\n')).size : 0);
  return { handlerPath, spent };
}

const register = (pools: CpuPools, key: string, spec: Partial<InstanceSpec>, limits: Partial<PoolLimits> = {}): void =>
  pools.register(on.spec(key, spec), { ...poolLimits, instancesMax: 1, ...limits });

async function outcomesOf(pools: CpuPools, key: string, texts: readonly string[]): Promise<string[]> {
  const outcomes: string[] = [];
  for (const text of texts) {
    outcomes.push(await pools.invoke(key, requestOf(text)).then(bodyOf, (error: Error) => error.message));
  }
  return outcomes;
}

const times = (count: number, text: string): string[] => Array.from({ length: count }, () => text);

describe('a function that has never answered is stopped', () => {
  test.each(['SIGSEGV', 'SIGABRT', 'SIGILL', 'SIGFPE', 'SIGBUS', 'exit 0', 'exit 3', 'throw'])(
    'by two processes that end with %s',
    async (what) => {
      const pools = start();
      const { handlerPath, spent } = await killer();
      register(pools, 'kills@1', { handlerPath });
      const outcomes = await outcomesOf(pools, 'kills@1', times(7, what));
      expect(spent()).toBe(2);
      const [said] = what.split(' ');
      const how = what === 'throw' ? /stray/ : said === 'exit' ? new RegExp(`exited with code ${what.slice(5)}`) : new RegExp(said!);
      for (const outcome of outcomes) expect(outcome).toMatch(how);
      for (const outcome of outcomes.slice(1)) {
        expect(outcome).toMatch(/^kills@1 is not run: 2 processes in a row died of it, .* in the handler's preprocess; /);
      }
      expect(pools.stopped('kills@1')).toMatchObject({ crashes: 2, untilMs: Infinity });
      expect(stops).toMatchObject([['kills@1', { crashes: 2 }]]);
      expect(given.map(({ cause }) => cause)).toEqual(['died', 'died']);
    },
  ); // prettier-ignore

  test('however many calls come at once, and whether or not its processes are its own', async () => {
    for (const isolation of ['own', 'shared'] as const) {
      const pools = start();
      const { handlerPath, spent } = await killer();
      register(pools, 'kills@1', { handlerPath, isolation });
      const failures = await Promise.allSettled(times(20, 'SIGSEGV').map((text) => pools.invoke('kills@1', requestOf(text))));
      for (const failure of failures) expect(failure).toMatchObject({ reason: { code: 'instance-died' } });
      expect(spent()).toBe(2);
      await pools.stop(0);
    }
  }); // prettier-ignore

  test('by native code that dies in a run: a division of the least number by -1', async () => {
    const graph = new GraphBuilder('divides');
    const x = graph.input('x', ElementType.INT64, ['n']);
    graph.output(graph.node('Div', [x, graph.constant({ ints: [-1] })]), ElementType.INT64, ['n'], 'y');
    const modelPath = join(on.folder, 'divides.onnx');
    await writeModel(graph.build(), modelPath);
    const pools = start();
    register(pools, 'divides@1', { modelPath });
    const run = async (value: bigint): Promise<unknown> =>
      await pools.invoke('divides@1', {
        kind: 'tensors',
        tensors: [tensorOf('x', 'INT64', [1], BigInt64Array.of(value))],
      });
    for (let call = 0; call < 7; call++) {
      await expect(run(-(2n ** 63n))).rejects.toMatchObject({
        code: call < 2 ? 'inference-input' : 'instance-died',
        message: expect.stringContaining('SIGFPE') as string,
      });
    }
    expect(given).toHaveLength(2);
    expect(given[1]?.reason).toBe('it was ended by SIGFPE in a run of the model');
    await expect(run(1n)).rejects.toMatchObject({ code: 'instance-died' });
    await pools.load('divides@1');
    await expect(run(1n)).resolves.toMatchObject({ coldStart: false });
    // It has answered now: one caller's numbers take a process each time, and nothing from the others.
    for (let call = 0; call < 3; call++) {
      await expect(run(-(2n ** 63n))).rejects.toMatchObject({ code: 'inference-input' });
      await expect(run(1n)).resolves.toBeDefined();
    }
    expect(pools.stopped('divides@1')).toBeUndefined();
  });

  test('by processes that die while they load it, and the loads fail', async () => {
    const pools = start();
    const { handlerPath, spent } = await killer(`process.kill(process.pid, 'SIGSEGV');`);
    register(pools, 'kills@1', { handlerPath });
    for (const _ of [1, 2, 3]) {
      await expect(pools.invoke('kills@1', requestOf('ok'))).rejects.toMatchObject({
        message: expect.stringContaining('SIGSEGV while it was loaded') as string,
      });
    }
    expect(spent()).toBe(2);
    await expect(pools.load('kills@1')).rejects.toMatchObject({ code: 'instance-died' });
    expect(spent()).toBe(4);
  });

  test('although it is pinned', async () => {
    const { handlerPath, spent } = await killer(`process.kill(process.pid, 'SIGSEGV');`);
    let pools: CpuPools | undefined;
    const said = new Promise<string>((resolve) => {
      pools = start({ log: (_pid, _key, line) => (line.includes('pinned') ? resolve(line) : undefined) });
    });
    if (pools === undefined) throw new Error('a promise begins at once');
    register(pools, 'kills@1', { handlerPath }, { instancesMin: 1 });
    expect(await said).toMatch(/the pinned function could not be loaded: .*SIGSEGV/);
    register(pools, 'kills@1', { handlerPath }, { instancesMin: 1, idleMs: 1 });
    await expect(pools.invoke('kills@1', requestOf('ok'))).rejects.toMatchObject({ code: 'instance-died' });
    expect(spent()).toBe(2);
  });

  test('although it has a configuration, and gets no other while it is stopped', async () => {
    const pools = start();
    const { handlerPath, spent } = await killer();
    register(pools, 'kills@1', { handlerPath });
    const configuration = { groups: [{ instances: 1, threads: 1, batch: 1 }] };
    expect(await pools.configure('kills@1', configuration, 'test')).toMatchObject({ state: 'done' });
    await outcomesOf(pools, 'kills@1', times(7, 'SIGSEGV'));
    expect(spent()).toBe(2);
    expect(await pools.configure('kills@1', configuration, 'test')).toMatchObject({
      state: 'refused',
      reason: expect.stringContaining('SIGSEGV') as string,
    });
    expect(pools.state('kills@1')?.instances).toEqual([]);
  });
});

describe('a function is run again', () => {
  test('when it is loaded, or registered anew', async () => {
    const pools = start();
    const { handlerPath, spent } = await killer();
    register(pools, 'kills@1', { handlerPath });
    await outcomesOf(pools, 'kills@1', times(3, 'SIGSEGV'));
    await pools.load('kills@1');
    expect(await outcomesOf(pools, 'kills@1', ['ok', 'ok'])).toEqual(['ok', 'ok']);
    expect(spent()).toBe(3);

    register(pools, 'kills@2', { handlerPath });
    await outcomesOf(pools, 'kills@2', times(3, 'SIGSEGV'));
    expect(spent()).toBe(5);
    await pools.unregister('kills@2');
    register(pools, 'kills@2', { handlerPath });
    expect(pools.stopped('kills@2')).toBeUndefined();
    expect(await outcomesOf(pools, 'kills@2', ['ok'])).toEqual(['ok']);
  });
});

describe('a function is not stopped', () => {
  test.each(['SIGKILL', 'SIGUSR2'])('by %s, which comes from outside', async (signal) => {
    const pools = start();
    const { handlerPath, spent } = await killer();
    register(pools, 'dies@1', { handlerPath });
    await outcomesOf(pools, 'dies@1', [signal, signal]);
    expect(spent()).toBeGreaterThan(2);
    expect(pools.stopped('dies@1')).toBeUndefined();
  });

  test('by runs past their time limit', async () => {
    const pools = start();
    const { handlerPath } = await killer();
    register(pools, 'hangs@1', { handlerPath }, { handlerTimeoutMs: 50 });
    for (const outcome of await outcomesOf(pools, 'hangs@1', times(3, 'hang'))) expect(outcome).toMatch(/took longer/);
    expect(pools.stopped('hangs@1')).toBeUndefined();
  });

  test('by single crashes between successful calls, however many', async () => {
    const pools = start();
    const { handlerPath, spent } = await killer();
    register(pools, 'flaky@1', { handlerPath });
    const texts = [1, 2, 3, 4].map((call) => `once ${join(on.folder, `once-${call}`)}`);
    expect(await outcomesOf(pools, 'flaky@1', texts)).toEqual(times(4, 'ok'));
    expect(spent()).toBe(5);
    expect(stops).toEqual([]);
  });

  test('by unloads', async () => {
    const pools = start();
    const { handlerPath } = await killer();
    register(pools, 'calm@1', { handlerPath });
    for (let round = 0; round < 3; round++) {
      expect(await outcomesOf(pools, 'calm@1', ['ok'])).toEqual(['ok']);
      await pools.unload('calm@1');
    }
    expect(stops).toEqual([]);
  });

  test('by a neighbour that kills their process, which is named in what the others are told', async () => {
    const pools = start({ cores: 1 });
    const { handlerPath } = await killer();
    register(pools, 'kills@1', { handlerPath });
    const calm = await killer();
    const neighbours = ['one@1', 'two@1'];
    for (const key of neighbours) register(pools, key, { handlerPath: calm.handlerPath });
    for (const key of neighbours) expect(await outcomesOf(pools, key, ['ok'])).toEqual(['ok']);
    expect(await outcomesOf(pools, 'kills@1', ['ok'])).toEqual(['ok']);
    const shared = new Set(['kills@1', ...neighbours].flatMap((key) => on.pidsOf(key)));
    expect(shared.size).toBe(1);

    await outcomesOf(pools, 'kills@1', times(3, 'SIGSEGV'));

    expect(stops.map(([key]) => key)).toEqual(['kills@1']);
    for (const key of neighbours) {
      const died = given.filter((each) => each.key === key);
      expect(died.map(({ reason }) => reason)).toEqual(['it was ended by SIGSEGV while it worked for kills@1']);
      expect(await outcomesOf(pools, key, ['ok'])).toEqual(['ok']);
    }
  });

  test('by a neighbour that is past its time limit, which is named too', async () => {
    const pools = start({ cores: 1 });
    const { handlerPath } = await killer();
    register(pools, 'hangs@1', { handlerPath }, { handlerTimeoutMs: 50 });
    const calm = await killer();
    register(pools, 'calm@1', { handlerPath: calm.handlerPath });
    expect(await outcomesOf(pools, 'calm@1', ['ok'])).toEqual(['ok']);
    await outcomesOf(pools, 'hangs@1', ['hang']);
    expect(given.find(({ key }) => key === 'calm@1')?.reason).toMatch(/preprocess of hangs@1 took longer than 50 ms/);
  });

  test('by a neighbour whose run takes long: they move away before it is ended, and nobody else dies of it', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const limitMs = 1_000_000;
      const pools = start({ cores: 1 });
      const { handlerPath } = await killer();
      register(pools, 'hangs@1', { handlerPath }, { handlerTimeoutMs: limitMs });
      const calm = await killer();
      const neighbours = ['one@1', 'two@1'];
      for (const key of neighbours) register(pools, key, { handlerPath: calm.handlerPath });
      for (const key of [...neighbours, 'hangs@1']) expect(await outcomesOf(pools, key, ['ok'])).toEqual(['ok']);
      const [pid] = on.pidsOf('hangs@1');
      for (const key of neighbours) expect(on.pidsOf(key)).toEqual([pid]);
      let entered = 0;
      const outcome = new Promise<string>((resolve) => {
        // The second time is said by the process: from then on the limit counts.
        const isHanging = new Promise<void>((hangs) => {
          const stages = { enter: () => (++entered === 2 ? hangs() : undefined) };
          pools.invoke('hangs@1', requestOf('hang'), { stages }).catch((error: Error) => resolve(error.message));
        });
        void isHanging.then(() => vi.advanceTimersByTime(limitMs / 2));
      });
      await vi.waitUntil(() => given.length === neighbours.length, { timeout: waitLimitMs });
      expect(given).toMatchObject(neighbours.map((key) => ({ key, cause: 'reconfigured' })));
      for (const key of neighbours) expect(await outcomesOf(pools, key, ['ok'])).toEqual(['ok']);
      vi.advanceTimersByTime(limitMs / 2);
      // A last look at what the process may have answered.
      await nextTurn();
      vi.advanceTimersByTime(1);
      expect(await outcome).toMatch(/took longer/);
      expect(given.slice(neighbours.length)).toMatchObject([{ key: 'hangs@1', cause: 'died' }]);
    } finally {
      vi.useRealTimers();
    }
  });

  test('by the death of an idle process, which does not count as a success either', async () => {
    const pools = start();
    const { handlerPath } = await killer();
    register(pools, 'kills@1', { handlerPath });
    await outcomesOf(pools, 'kills@1', [`once ${join(on.folder, 'idle-once')}`]);
    for (let round = 0; round < 3; round++) {
      const isGone = new Promise<void>((resolve) => {
        onGiven = resolve;
      });
      await pools.load('kills@1');
      process.kill(on.pidsOf('kills@1')[0]!, 'SIGSEGV');
      await isGone;
    }
    expect(stops).toEqual([]);
  });
});
