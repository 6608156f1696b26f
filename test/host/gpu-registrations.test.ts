/** Which functions a GPU process gets, and which it is never given again, with a process that is made up. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GpuError, type GpuErrorCode } from '../../src/gpu/index.ts';
import { loadMachine } from '../../src/hardware/index.ts';
import { ProfileShelf } from '../../src/host/gpu/plan-book.ts';
import { Registrations, type GpuGround, type RegistrationsClient } from '../../src/host/gpu/registrations.ts';
import { GpuShell } from '../../src/host/gpu/shell.ts';
import { ShippedPlans } from '../../src/host/gpu/shipped-plans.ts';
import type { FunctionVersion } from '../../src/host/types.ts';
import { policies } from '../../src/schedule/index.ts';
import { FakeStore, functionVersion } from './fakes.ts';

const weightBytes = 1000;
const slowPool = { latencyMs: 1000, cores: 1 };
const unused = (): never => expect.fail('nothing runs here');

/** Answers in the next turn of the event loop, or ends, with all that it has in hand. */
class MadeUpProcess {
  readonly asked: string[] = [];
  readonly registered = new Set<string>();
  readonly #inHand = new Map<string, (error?: GpuError) => void>();
  /** Whether it ends over these. */
  endsOver: (keys: readonly string[]) => boolean = () => false;
  measureFailure: GpuErrorCode | undefined;
  onMeasure: (key: string) => void = () => undefined;
  onEnd: () => void = () => undefined;
  deaths = 0;

  readonly client: RegistrationsClient = {
    register: async ({ key }) => {
      await this.#work(key);
      this.#add(key);
      const layers = [{ name: `layer of ${key}`, kind: 'linear' as const, bytes: weightBytes }];
      return { covered: true, layers, weightBytes, arenaBytes: 0, workspaceBytes: 0, launches: 1 };
    },
    registerAgain: async (key) => {
      await this.#work(key);
      this.#add(key);
    },
    unregister: (key) => Promise.resolve(void this.registered.delete(key)),
    measure: (key) => {
      this.onMeasure(key);
      if (!this.registered.has(key)) return Promise.reject(new GpuError('unknown-function', `who is ${key}?`));
      if (this.measureFailure !== undefined) return Promise.reject(new GpuError(this.measureFailure, 'no'));
      const cost = { loadMs: 1, execMs: 1, dhaMs: 2, bytes: weightBytes };
      const layers = [{ name: `layer of ${key}`, kind: 'linear' as const, dhaReadBytes: weightBytes, ...cost }];
      const spread = { medianMs: 1, minMs: 1, maxMs: 1 };
      return Promise.resolve({ unit: 'ms', layers, gpu: 'made up', iterations: 1, spread: [], warm: spread } as never);
    },
    evict: () => Promise.resolve(0),
    measureOperators: unused,
    addPlan: unused,
    dropPlan: unused,
  };

  #add(key: string): void {
    if (this.registered.has(key)) throw new GpuError('invalid', `${key} is registered already`);
    this.registered.add(key);
  }

  #work(key: string): Promise<void> {
    this.asked.push(key);
    if (this.#inHand.size === 0) setImmediate(() => this.#answer());
    return new Promise((resolve, reject) => {
      this.#inHand.set(key, (error) => (error === undefined ? resolve() : reject(error)));
    });
  }

  #answer(): void {
    if (this.endsOver([...this.#inHand.keys()])) this.end();
    const all = [...this.#inHand.values()];
    this.#inHand.clear();
    for (const resolve of all) resolve();
  }

  end(): void {
    this.deaths++;
    this.registered.clear();
    this.onEnd();
    const all = [...this.#inHand.values()];
    this.#inHand.clear();
    for (const reject of all) reject(new GpuError('died', 'it was ended'));
  }
}

let folder: string;
let store: FakeStore;
let made: MadeUpProcess;
let registrations: Registrations;
let ground: GpuGround;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-registrations-'));
  store = new FakeStore();
  made = new MadeUpProcess();
  const machine = loadMachine('p3.8xlarge');
  const gpus = machine.gpus.map((gpu) => ({ capacityBytes: 10_000, switch: gpu.switch, linkGBps: 12, uplinkGBps: 12 }));
  const runner = { run: unused, load: unused, trim: unused, keep: unused };
  ground = {
    machine,
    machineName: 'made up',
    shelf: new ProfileShelf(join(folder, 'profiles'), 'made up'),
    shell: new GpuShell({ gpus, policy: policies.best, cpuCores: 1, runner, cpuOffer: () => slowPool }),
  };
  registrations = new Registrations({
    client: made.client,
    registry: store,
    logger: pino({ level: 'silent' }),
    dataDir: folder,
    mode: 'pipeswitch',
    iterations: 1,
    ladder: { kind: 'off', cores: 0 },
    whenIdle: () => Promise.resolve(),
    shippedPlans: new ShippedPlans(join(folder, 'no-plans')),
    onPinned: () => undefined,
  });
  made.onEnd = () => {
    registrations.down();
    setImmediate(() => registrations.up(ground));
  };
});
afterEach(async () => {
  await registrations.close();
  await rm(folder, { recursive: true, force: true });
});

function publish(name: string, pinned = false): FunctionVersion {
  const version = functionVersion(name, { modelPath: `/nowhere/${name}.onnx` });
  const published = { ...version, settings: { ...version.settings, pinned } };
  store.put(published);
  return published;
}

const statusOf = (name: string): string | undefined => registrations.standing(`${name}@1`)?.status;
const statuses = (names: readonly string[]): (string | undefined)[] => names.map(statusOf);

test('the one function that ends the process is refused, not those that were in hand beside it', async () => {
  made.endsOver = (keys) => keys.includes('poison@1');
  const names = ['a', 'b', 'poison', 'c', 'd', 'e'];
  for (const name of names) publish(name);
  registrations.up(ground);
  await registrations.settled();
  expect(statuses(names)).toEqual(['planned', 'planned', 'refused', 'planned', 'planned', 'planned']);
  expect(names.filter((name) => registrations.isPresent(`${name}@1`))).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(made.deaths).toBe(4);
});

test('a process that ends for other reasons while several functions are brought to it costs none of them its place', async () => {
  made.endsOver = () => made.deaths < 3;
  const names = ['a', 'b', 'c', 'd'];
  for (const name of names) publish(name);
  registrations.up(ground);
  await registrations.settled();
  expect(statuses(names)).toEqual(['planned', 'planned', 'planned', 'planned']);
});

test('a function that ends each process to which it is brought back is refused, and the others stay', async () => {
  const names = ['a', 'b', 'late'];
  for (const name of names) publish(name);
  registrations.up(ground);
  await registrations.settled();
  expect(statuses(names)).toEqual(['planned', 'planned', 'planned']);
  made.endsOver = (keys) => keys.includes('late@1');
  made.end();
  while (statusOf('late') !== 'refused') await new Promise(setImmediate);
  await registrations.settled();
  expect(statuses(names)).toEqual(['planned', 'planned', 'refused']);
  expect(['a', 'b', 'late'].filter((name) => ground.shell.has(`${name}@1`))).toEqual(['a', 'b']);
});

test('what a new process does not know, because it was registered with the last one, is registered there', async () => {
  made.onEnd = () => {
    registrations.down();
    registrations.up(ground);
  };
  made.onMeasure = () => {
    if (made.deaths === 0) made.end();
  };
  publish('a');
  registrations.up(ground);
  await registrations.settled();
  expect(statusOf('a')).toBe('planned');
});

test('a function for whose measurement pinned ones left no room is measured when a pin goes', async () => {
  const pinned = publish('pinned', true);
  registrations.up(ground);
  await registrations.settled();
  made.measureFailure = 'out-of-memory';
  publish('late');
  await registrations.settled();
  expect(registrations.standing('late@1')).toEqual({ status: 'refused', reason: 'no' });
  expect(made.registered).toEqual(new Set(['pinned@1']));
  made.measureFailure = undefined;
  store.put({ ...pinned, settings: { ...pinned.settings, pinned: false } });
  await registrations.settled();
  expect(statuses(['pinned', 'late'])).toEqual(['planned', 'planned']);
});

test('a function that was refused for want of room is measured when the pinned one is removed', async () => {
  publish('pinned', true);
  registrations.up(ground);
  await registrations.settled();
  made.measureFailure = 'out-of-memory';
  publish('late');
  await registrations.settled();
  expect(statusOf('late')).toBe('refused');
  made.measureFailure = undefined;
  await store.remove('pinned', undefined);
  await registrations.settled();
  expect(statusOf('late')).toBe('planned');
});
