/** One host with every kind of place: two emulated GPUs, its CPU pool, and a worker behind Redis. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { placedText } from '../../src/cli/ps.ts';
import { loadConfig, startHost, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { PoolTaker, type RemoteWorker } from '../../src/queue/index.ts';
import { RedisLink, startRemoteWorker } from '../../src/queue/redis.ts';
import { runSimulation, Xoshiro, type Outcome } from '../../src/replay/index.ts';
import { policies } from '../../src/schedule/index.ts';
import { buildEmulatedDriver } from '../emulated-driver/build.ts';
import { emulateGpus } from '../support/emulate-gpus.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { silentLog } from '../support/silent-log.ts';
import { wave } from '../support/unrolling.ts';
import { FolderStore } from '../../src/store/index.ts';
import { waitLimitMs } from '../time-limits.ts';

const mebibyte = 2 ** 20;
const width = 512;
const names = Array.from({ length: 8 }, (_, index) => `product-${index}`);
const body = JSON.stringify({
  inputs: [{ name: 'x', datatype: 'FP32', shape: [1, width], data: Array.from({ length: width }, () => 1) }],
});
const random = new Xoshiro(Number(process.env['TURNTABLE_SEED'] ?? 1));
const logger = createLogger({ level: 'silent', format: 'json' });

interface Reply {
  readonly status: number;
  readonly placement: string;
}

/** A host over these functions, and what it needs; everything ends with it. */
class Fixture {
  folder = '';
  host!: RunningHost;
  readonly #ends: (() => Promise<unknown>)[] = [];

  async start(gpus: number, flags: Readonly<Record<string, string>>, slo: string): Promise<void> {
    this.folder = await mkdtemp(join(tmpdir(), 'turntable-places-'));
    const devices = Array.from({ length: gpus }, () => ({ memoryBytes: 64 * mebibyte }));
    await emulateGpus(devices);
    for (const [index, name] of names.entries()) await this.add(name, index, slo);
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(this.folder, 'data'),
        functionsDir: join(this.folder, 'functions'),
        'cpu.cores': '1',
        'cpu.profiling': 'off',
        // Room for three functions on each GPU.
        'gpu.memory': '4.4MiB',
        'gpu.hostMemory': '64MiB',
        'gpu.profileIterations': '1',
        'gpu.hybrid': 'off',
        'gpu.mode': 'pipeswitch',
        ...flags,
      },
    });
    this.host = await startHost(config, { logger });
    this.#ends.push(() => this.host.stop());
    await this.host.gpus!.settled();
  }

  async add(name: string, seed: number, slo: string): Promise<void> {
    const place = join(this.folder, 'functions', name);
    await mkdir(place, { recursive: true });
    const graph = new GraphBuilder(name);
    const x = graph.input('x', ElementType.FLOAT, [1, width]);
    const w = graph.weight('w', [width, width], wave([width, width], seed + 1, 0.2));
    graph.output(graph.node('MatMul', [x, w]), ElementType.FLOAT, [1, width], 'y');
    await writeModel(graph.build(), join(place, 'model.onnx'));
    await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo }));
  }

  /** With one core of its own. */
  async startWorker(redisUrl: string): Promise<void> {
    const link = new RedisLink({ url: redisUrl, prefix: 'turntable' });
    await link.ready(waitLimitMs);
    const pools = { blankInstances: 1, memoryBytes: 1e9, log: () => undefined };
    const taker = new PoolTaker({ name: 'lab-7', cores: 1, pools, store: new FolderStore(join(this.folder, 'data')), models: join(this.folder, 'worker'), modelBytesMax: 1e8, threads: 1, queueMax: 100, idleMs: 3_600_000, log: silentLog }); // prettier-ignore
    await taker.start();
    const worker: RemoteWorker = await startRemoteWorker({ link, taker, log: silentLog });
    this.#ends.unshift(async () => {
      await worker.stop(1000);
      await taker.stop();
      link.close();
    });
    for (;;) {
      const { workers } = (await (await fetch(`${this.host.url}/v2/workers`)).json()) as { workers: { functions: { held: boolean }[] }[] }; // prettier-ignore
      if (workers[0]?.functions.filter(({ held }) => held).length === names.length) return;
      await delay(20); // Workers emit no event here for what they report.
    }
  }

  async call(name: string): Promise<Reply> {
    const reply = await fetch(`${this.host.url}/v2/models/${name}/infer`, { method: 'POST', body });
    await reply.arrayBuffer();
    return { status: reply.status, placement: reply.headers.get('x-turntable-placement') ?? '' };
  }

  /** By `from to`, as in `/metrics`. */
  async overflows(): Promise<number> {
    const text = await (await fetch(`${this.host.url}/metrics`)).text();
    const series = [...text.matchAll(/^turntable_overflow_total\{.*\} (\d+)$/gm)];
    return series.reduce((sum, [, count]) => sum + Number(count), 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const end of this.#ends) await end();
    await rm(this.folder, { recursive: true, force: true });
  }
}

describe.skipIf(emulatorMissing)('a host with every kind of place', () => {
  let fixture: Fixture;
  beforeAll(() => buildEmulatedDriver(), 120_000);
  afterEach(async () => await fixture?.[Symbol.asyncDispose]());

  test.skipIf(redisMissing !== undefined)(
    'overflows to its pool and its worker before calls miss their SLO, says so everywhere, and stops when the load does',
    async () => {
      await using redis = await RedisServer.start();
      fixture = new Fixture();
      await fixture.start(2, { 'redis.url': redis.url }, '40ms');
      await fixture.startWorker(redis.url);
      // Nothing was measured on the CPU, here or there, and more calls come at once than the GPUs can carry.
      const replies = await Promise.all(
        Array.from({ length: 400 }, () => fixture.call(names[random.below(names.length)]!)),
      );
      expect(replies.filter(({ status }) => status !== 200)).toEqual([]);
      const told = replies.filter(({ placement }) => placement.includes(' overflow: '));
      const byPlace = (word: string): number => replies.filter(({ placement }) => placement.startsWith(word)).length;
      expect(byPlace('gpu')).toBeGreaterThan(0);
      expect(byPlace('cpu pool')).toBeGreaterThan(0);
      expect(byPlace('remote worker lab-7')).toBeGreaterThan(0);
      expect(told.some(({ placement }) => / overflow: gpu\d would finish in \d+ ms, after the SLO of 40 ms/.test(placement))).toBe(true); // prettier-ignore
      expect(await fixture.overflows()).toBe(told.length);
      const text = placedText(await (await fetch(`${fixture.host.url}/api/functions`)).json(), Date.now());
      const [titles = [], ...rows] = text.split('\n').map((line) => line.split(/ {2,}/));
      // Sentences about functions follow the table.
      const counts = rows.flatMap((row) => (row.length < titles.length ? [] : Number(row[titles.indexOf('OVERFLOW')])));
      expect(counts.reduce((sum, count) => sum + count, 0)).toBe(told.length);
      // The load has ended: the learned load fades within seconds, and then nothing overflows any more.
      let later = 0;
      for (let inRow = 0; inRow < 2 * names.length;) {
        const { placement } = await fixture.call(names[inRow % names.length]!);
        if (placement.includes(' overflow: ')) later++;
        inRow = placement.startsWith('gpu') ? inRow + 1 : 0;
      }
      expect(await fixture.overflows()).toBe(told.length + later);
    },
  );

  test('evicts by gpu.policy lru exactly the least recently used function', async () => {
    fixture = new Fixture();
    await fixture.start(1, { 'gpu.policy': 'lru' }, '60s');
    const { live } = fixture.host.gpus!;
    const resident = (): string[] => names.filter((name) => live.resident(`${name}@1`, 0).bytes > 0);
    let lru: string[] = [];
    for (const index of [0, 1, 2, 0, 3, 1, 2, 0]) {
      const name = names[index]!;
      expect((await fixture.call(name)).placement).toMatch(lru.includes(name) ? /^gpu0 warm/ : /^gpu0 cold/);
      lru = [...lru.filter((each) => each !== name), name].slice(-3);
      expect(resident()).toEqual(lru.toSorted());
    }
    expect(live.counts.evictions).toEqual(new Map([['capacity', 4]]));
  });

  test('places and evicts like the simulator for the same calls in the same order', async () => {
    fixture = new Fixture();
    await fixture.start(2, { 'gpu.policy': 'artifact' }, '60s');
    const { live } = fixture.host.gpus!;
    const order = Array.from({ length: 40 }, () => random.below(names.length));
    const placements: string[] = [];
    for (const index of order)
      placements.push((await fixture.call(names[index]!)).placement.replace(/ pipeswitch$/, ''));
    const outcomes: Outcome[] = [];
    let evictions = 0;
    // This policy uses the number of a function, which is the order in which functions became ready for the GPUs.
    const numberOf = (name: string): number => live.placeOf(`${name}@1`)!.index;
    const numbered = names.toSorted((one, other) => numberOf(one) - numberOf(other));
    const invocations = order.map((index, at) => ({
      functionIndex: numbered.indexOf(names[index]!),
      arrivalMs: 10_000 * at,
    }));
    runSimulation(
      { functionNames: numbered, invocations: () => invocations },
      {
        gpus: live.gpus,
        policy: policies.artifact,
        cpu: { cores: 1, memoryBytes: Infinity },
        sheetOf: (_, name) => live.sheetOf(`${name}@1`)!,
        observer: {
          outcome: (outcome) => outcomes.push({ ...outcome }),
          eviction: () => evictions++,
          busy: () => undefined,
        },
      },
    );
    const simulated = outcomes
      .toSorted((one, other) => one.sequence - other.sequence)
      .map(({ placement }) =>
        placement.kind === 'gpu' ? `gpu${placement.gpu} ${placement.residency}` : placement.kind,
      );
    expect(placements).toEqual(simulated);
    expect([...live.counts.evictions.values()].reduce((sum, count) => sum + count, 0)).toBe(evictions);
  });
});
