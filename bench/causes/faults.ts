/** Faults, and what a host must say of each: the true cause, in all places. */
import { spawn } from 'node:child_process';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { TroubleAnswer } from '../../src/host/dashboard/index.ts';
import type { MissCause } from '../../src/host/calls/miss-causes.ts';
import { ElementType, GraphBuilder } from '../../src/onnx/index.ts';
import { buildEmulatedDriver } from '../../test/emulated-driver/build.ts';
import { emulatedEnvironment } from '../../test/support/emulator.ts';
import { redisMissing, RedisServer } from '../../test/support/redis-server.ts';
import { busyGraph } from '../chaos/models.ts';
import { childPids, instancePids, Servers } from '../servers.ts';
import { SlowDisk } from './slow-disk.ts';
import { blockingHandler, slowHandler, type Scene, type SceneFunctions } from './scene.ts';

export interface Fault {
  readonly name: string;
  readonly functions: SceneFunctions;
  readonly flags: readonly string[];
  /** What its host needs; undefined where this machine has none. */
  readonly needs?: () => Promise<Needs | undefined>;
  /** Plants the fault, and calls. What it returns is disposed of when all was asked. */
  readonly plant: (run: Scene, needs: Needs) => Promise<Disposable | AsyncDisposable | undefined>;
  /**
   * One of these is true; `facts` must match as well. `isStarved`: its work needs cores, so that it is true as well that
   * other programs have them, where they do. 'no miss': calls were refused for what their clients did, which
   * `limited` says if they were too many.
   */
  readonly truth:
    | { readonly causes: readonly MissCause[]; readonly facts: RegExp; readonly isStarved?: true }
    | { readonly limited: RegExp }
    | 'no miss';
}

export interface Needs extends Partial<AsyncDisposable> {
  readonly flags?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly redisUrl?: string;
}

async function redisNeeded(): Promise<Needs | undefined> {
  if (redisMissing !== undefined) return undefined;
  const redis = await RedisServer.start();
  return {
    flags: ['--redis', redis.url],
    redisUrl: redis.url,
    [Symbol.asyncDispose]: async () => await redis[Symbol.asyncDispose](),
  };
}

async function gpuNeeded(): Promise<Needs | undefined> {
  const driver = await buildEmulatedDriver();
  return driver && { environment: emulatedEnvironment(driver, [{ memoryBytes: 2 ** 26 }]) };
}

const sloOf = (slo: string): { readonly settings: object } => ({ settings: { slo } });
const oneCore = ['--cpu-cores', '1'];

/** Programs that take all cores. */
export function neighbours(perCore = 2): Disposable {
  const loops = Array.from({ length: perCore * availableParallelism() }, () =>
    spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }),
  );
  return {
    [Symbol.dispose]: () => {
      for (const loop of loops) loop.kill('SIGKILL');
    },
  };
}

async function times(count: number, call: () => Promise<unknown>): Promise<undefined> {
  for (let done = 0; done < count; done++) await call();
}

const together = async (count: number, call: (client: number) => Promise<unknown>): Promise<undefined> =>
  void (await Promise.all(Array.from({ length: count }, (_, client) => call(client))));

const placementOf = (reply: Response | undefined): string => reply?.headers.get('x-turntable-placement') ?? '';

/** Calls until an answer comes from such a place. */
async function untilAt(place: RegExp, run: Scene, name: string, atOnce = 12): Promise<void> {
  const endMs = performance.now() + 60_000;
  while (performance.now() < endMs) {
    const replies = await Promise.all(Array.from({ length: atOnce }, () => run.reply(name)));
    if (replies.some((reply) => place.test(placementOf(reply)))) return;
    await pause(100);
  }
  throw new Error(`no answer of ${name} came from ${place}`);
}

/** Calls until a sample of the machine says what others take. */
async function untilMeasured(run: Scene, call: () => Promise<unknown>): Promise<void> {
  const endMs = performance.now() + 30_000;
  while (performance.now() < endMs) {
    await times(10, call);
    const { worst } = await run.trouble();
    if (worst.some(({ facts }) => /[5-9]\d% by others/.test(facts))) return;
    await pause(500);
  }
}

const evicting = ['one', 'two', 'three', 'four'];
const evictingFunctions = Object.fromEntries(
  evicting.map((name) => [name, { settings: { slo: '20ms', isolation: 'own' } }]),
);

const slowRun = busyGraph({ rows: 32, width: 1024, layers: 12 });

const slowToLoad = busyGraph({ rows: 1, width: 1024, layers: 16 });

/** 8 MB. */
const largeModel = busyGraph({ rows: 1, width: 512, layers: 8 });
const diskBytesPerSecond = 20e6;

function longInput(): GraphBuilder {
  const graph = new GraphBuilder('long');
  const x = graph.input('x', ElementType.FLOAT, [1, numbers]);
  graph.output(graph.node('ReduceMean', [x], { axes: [0, 1] }), ElementType.FLOAT, [1, 1], 'y');
  return graph;
}
const numbers = 400_000;
const longBody = JSON.stringify({ input: [Array.from({ length: numbers }, (_, index) => index / 7)] });

export const failingHandler = `
export const preprocess = () => { throw new Error('planted'); };
export const postprocess = () => 'ok';
`;

export const faults: readonly Fault[] = [
  {
    name: 'functions evict each other',
    functions: evictingFunctions,
    flags: ['--cpu-memory', '100MB', ...oneCore],
    plant: async (run) => {
      for (let round = 0; round < 20; round++) for (const name of evicting) await run.call(name);
      return undefined;
    },
    truth: { causes: ['load'], facts: /evicted .*: up to [\d.]+ MB of 100 MB used \(cpu\.memory\)/ },
  },
  {
    name: 'functions evict each other beside a busy neighbour',
    functions: evictingFunctions,
    flags: ['--cpu-memory', '100MB', ...oneCore],
    plant: async (run) => {
      const busy = neighbours(1);
      // Enough for a sample of the machine, and for evictions.
      const endMs = performance.now() + 40_000;
      await together(12, async (client) => {
        for (let call = client; performance.now() < endMs; call++) await run.call(evicting[call % evicting.length]!);
      });
      return busy;
    },
    truth: { causes: ['load'], facts: /evicted .*; cores \d+% by Turntable, \d+% by others/ },
  },
  {
    name: 'instances are stopped',
    functions: { f: sloOf('100ms') },
    flags: oneCore,
    plant: async (run) => {
      await times(3, () => run.call('f'));
      for (const pid of await instancePids(run.host.process)) process.kill(pid, 'SIGSTOP');
      const leave = new AbortController();
      for (let call = 0; call < 5; call++) void run.call('f', leave.signal);
      await pause(6000);
      return { [Symbol.dispose]: () => leave.abort() };
    },
    truth: { causes: ['model', 'queue'], facts: /its process \d+ is stopped/ },
  },
  {
    name: 'a slow handler',
    functions: { f: { ...sloOf('50ms'), handler: slowHandler } },
    flags: oneCore,
    plant: async (run) => await times(30, () => run.call('f')),
    truth: { causes: ['handler'], facts: /cores/ },
  },
  {
    name: 'a handler that blocks its thread',
    functions: { f: { ...sloOf('50ms'), handler: blockingHandler } },
    flags: oneCore,
    plant: async (run) => await times(30, () => run.call('f')),
    truth: { causes: ['handler'], facts: /cores/, isStarved: true },
  },
  {
    name: 'clients that leave a slow handler after the SLO',
    functions: { f: { ...sloOf('50ms'), handler: slowHandler } },
    flags: oneCore,
    plant: async (run) => {
      await run.call('f');
      return await times(25, async () => {
        await run.call('f', AbortSignal.timeout(140));
        // The handler ends, so that none waits for a turn.
        await pause(150);
      });
    },
    truth: { causes: ['handler'], facts: /cores/ },
  },
  {
    name: 'a slow model',
    functions: { f: { ...sloOf('2ms'), model: slowRun } },
    flags: oneCore,
    plant: async (run) => await times(40, () => run.call('f')),
    truth: { causes: ['model'], facts: /a run takes [\d.]+ ms in the mean/, isStarved: true },
  },
  {
    name: 'more calls than a core carries',
    functions: { f: { ...sloOf('20ms'), model: slowRun } },
    flags: oneCore,
    plant: async (run) => {
      await run.call('f');
      return await together(24, async () => await times(6, () => run.call('f')));
    },
    truth: { causes: ['queue'], facts: /its instances: \d+/ },
  },
  {
    name: 'a flood of another function',
    functions: { f: { ...sloOf('20ms') }, flood: { model: slowRun } },
    flags: oneCore,
    plant: async (run) => {
      await Promise.all([run.call('f'), run.call('flood')]);
      const leave = new AbortController();
      const flood = together(24, async () => {
        while (!leave.signal.aborted) await run.call('flood', leave.signal);
      });
      await times(30, () => run.call('f'));
      leave.abort();
      return await flood;
    },
    truth: { causes: ['queue', 'load', 'busy'], facts: /its instances|evicted|cores/ },
  },
  {
    name: 'more calls than a core carries are shed',
    functions: { f: { ...sloOf('20ms'), model: slowRun } },
    flags: [...oneCore, '--admission', 'shed'],
    plant: async (run) => {
      await times(5, () => run.call('f'));
      return await together(24, async () => await times(10, () => run.call('f')));
    },
    truth: { causes: ['shed'], facts: /cores/ },
  },
  {
    name: 'a burst on a cold function',
    functions: { f: { ...sloOf('10ms'), model: slowToLoad } },
    flags: oneCore,
    plant: async (run) => await together(25, () => run.call('f')),
    truth: { causes: ['load'], facts: /its first use/ },
  },
  {
    name: 'an operator unloads it again and again',
    functions: { f: { ...sloOf('10ms'), model: slowToLoad } },
    flags: [...oneCore, '--unloaded', 'until-call'],
    plant: async (run) =>
      await times(25, async () => {
        await run.call('f');
        await run.unload('f');
      }),
    truth: { causes: ['load'], facts: /unloaded, or replaced by another version, \d+ times/ },
  },
  {
    name: 'clients that send their bodies slowly',
    functions: { f: sloOf('100ms') },
    flags: oneCore,
    plant: async (run) => {
      await run.call('f');
      // Not all at once, so that they do not wait for each other.
      return await together(5, () => times(5, () => run.callSlowly('f', 1000)));
    },
    truth: { causes: ['upload'], facts: /took long to send/ },
  },
  {
    name: 'the host gets no core for half a second at a time',
    functions: { f: { ...sloOf('300ms'), handler: slowHandler } },
    flags: oneCore,
    plant: async (run) => {
      await run.call('f');
      return await times(22, async () => {
        const call = run.call('f');
        await pause(50);
        run.host.process.kill('SIGSTOP');
        await pause(500);
        run.host.process.kill('SIGCONT');
        await call;
      });
    },
    truth: { causes: ['busy'], facts: /event loop was up to [\d.]+ m?s late/ },
  },
  {
    name: 'large JSON bodies',
    functions: { f: { ...sloOf('5ms'), model: longInput() } },
    flags: oneCore,
    plant: async (run) => {
      await run.call('f', undefined, longBody);
      return await together(6, async () => await times(5, () => run.call('f', undefined, longBody)));
    },
    truth: { causes: ['body'], facts: /decoding took/, isStarved: true },
  },
  {
    name: 'a handler that fails',
    functions: { f: { ...sloOf('1s'), handler: failingHandler } },
    flags: oneCore,
    plant: async (run) => await times(25, () => run.call('f')),
    truth: { causes: ['failed'], facts: /its calls fail/ },
  },
  {
    name: 'clients that send too much or a wrong type',
    functions: { f: sloOf('1s') },
    flags: [...oneCore, '--limits-body', '1KiB'],
    plant: async (run) =>
      await times(30, async () => {
        await run.call('f', undefined, '{"input":["text"]}');
        await run.call('f', undefined, ' '.repeat(2000));
      }),
    truth: 'no miss',
  },
  {
    name: 'a slow disk',
    functions: { f: { ...sloOf('100ms'), model: largeModel } },
    flags: [...oneCore, '--unloaded', 'until-call'],
    needs: () => {
      const probe = SlowDisk.limit(tmpdir(), diskBytesPerSecond);
      probe?.[Symbol.dispose]();
      return Promise.resolve(probe && {});
    },
    plant: async (run) => {
      const disk = SlowDisk.limit(run.folder, diskBytesPerSecond)!;
      await times(2, () => run.call('f'));
      await disk.slowDown(run.host);
      await times(22, async () => {
        await run.unload('f');
        await disk.forget();
        await run.call('f');
      });
      return disk;
    },
    truth: { causes: ['load'], facts: /its instances waited [\d.]+ m?s( \d+ s)? for .* from the disk/ },
  },
  {
    name: 'a client over the rate of its key',
    functions: { f: sloOf('1s') },
    flags: [...oneCore, '--rate-per-key', '5', '--gpu-use', 'off'],
    needs: () => Promise.resolve({ environment: { TURNTABLE_API_KEYS: 'planted-key' } }),
    plant: async (run) =>
      await times(60, () => run.call('f', undefined, undefined, { authorization: 'Bearer planted-key' })),
    truth: { limited: /^\d+ requests were over a limit \(429 rate-limited\), the latest: the API key '.*' has sent/ },
  },
  {
    name: 'a worker is stopped while a queue feeds it',
    // Its handler waits for longer than a call needs cores.
    functions: { f: { ...sloOf('2500ms'), handler: slowHandler } },
    flags: oneCore,
    needs: redisNeeded,
    plant: async (run, { redisUrl }) => {
      const servers = await Servers.create();
      const { process: worker } = await servers.startWorker('lab', [
        '--redis',
        redisUrl!,
        '--cores',
        '1',
        '--store',
        join(run.folder, 'data'),
      ]);
      // More than the host answers within the SLO.
      await untilAt(/worker lab/, run, 'f', 40);
      const leave = new AbortController();
      const calls = together(4, async () => {
        while (!leave.signal.aborted) await run.call('f', leave.signal);
      });
      // Silent for longer than it takes to count as lost.
      await times(7, async () => {
        await pause(1200);
        worker.kill('SIGSTOP');
        await pause(3500);
        worker.kill('SIGCONT');
      });
      leave.abort();
      await calls;
      return servers;
    },
    // What it held comes back, and waits for a turn here.
    truth: { causes: ['away', 'queue'], facts: /fell silent \d+ times: lab/, isStarved: true },
  },
  {
    name: 'the GPU process is stopped beside a busy neighbour',
    functions: { f: sloOf('200ms') },
    flags: oneCore,
    needs: gpuNeeded,
    plant: async (run) => {
      await untilAt(/^gpu0/, run, 'f');
      const busy = neighbours(1);
      // A sample of the machine.
      await pause(6000);
      const [gpuProcess] = await childPids(run.host.process, 'gpu/process/main');
      process.kill(gpuProcess!, 'SIGSTOP');
      const leave = new AbortController();
      for (let call = 0; call < 25; call++) void run.call('f', leave.signal);
      // Long before the host can tell that it hangs.
      await pause(1500);
      return {
        [Symbol.dispose]: () => {
          leave.abort();
          busy[Symbol.dispose]();
        },
      };
    },
    // Where others have the cores, the host may have ended it by the time it is asked.
    truth: { causes: ['model', 'queue', 'load'], facts: /the GPU process (is stopped|.*it has not answered for 10 s)/ },
  },
  {
    name: 'a busy neighbour',
    functions: { f: sloOf('1ms') },
    flags: oneCore,
    plant: async (run) => {
      const busy = neighbours();
      await untilMeasured(run, () => run.call('f'));
      return busy;
    },
    // Whatever waits for a core waits longer.
    truth: { causes: ['busy', 'model', 'queue', 'load'], facts: /[4-9]\d% by others/ },
  },
];

/** Redis of a host is killed: it is said of the host, and of no function. */
export async function redisDies(act: (flags: readonly string[], kill: () => Promise<void>) => Promise<void>) {
  if (redisMissing !== undefined) return;
  const redis = await RedisServer.start();
  await act(['--redis', redis.url, ...oneCore], async () => await redis[Symbol.asyncDispose]());
}

export const saysRedisIsDown = ({ dependencies }: Pick<TroubleAnswer, 'dependencies'>): boolean =>
  dependencies.some(({ dependency, state }) => dependency === 'redis' && state === 'down');
