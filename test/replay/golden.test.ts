/**
 * Golden decisions: each scene under each policy gives the hash that was recorded. A change of the scheduler that is to
 * change no decision leaves all of them; one that changes a rule records them anew, and its commit names the scenes that
 * moved: `TURNTABLE_GOLDEN=record npx vitest run test/replay/golden.test.ts`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, expect, test } from 'vitest';
import { manyGpus } from '../../bench/hours/machines.ts';
import { nothingPlayed, play } from '../../bench/seeds/play.ts';
import { joinedScenario, scenario, type Scenario } from '../../bench/seeds/scenario.ts';
import { loadMachine, type Machine } from '../../src/hardware/index.ts';
import {
  azureLikeTrace,
  burstTrace,
  diurnalTrace,
  limitTrace,
  OfferCache,
  poissonTrace,
  runSimulation,
  simulate,
  simulateFleet,
  Xoshiro,
  type FleetSettings,
  type FunctionSettings,
  type ReplayObserver,
  type SimulationSettings,
  type SimulatorOptions,
  type Trace,
} from '../../src/replay/index.ts';
import { simulatorOptions } from '../../src/replay/simulate.ts';
import { policies, policyNames, Scheduler, type OfferSheet } from '../../src/schedule/index.ts';
import { DecisionHash, decisionsOf } from '../support/golden.ts';

const file = new URL('golden.json', import.meta.url);
const isRecording = process.env['TURNTABLE_GOLDEN'] === 'record';
const golden = JSON.parse(readFileSync(file, 'utf8')) as Record<string, Record<string, string>>;
const found: Record<string, Record<string, string>> = {};
afterAll(() => {
  if (isRecording) writeFileSync(file, `${JSON.stringify(found, undefined, 2)}\n`);
});

const recorded = (name: string): unknown => (isRecording ? found : golden)[name];

const modes = { lru: 'baseline', artifact: 'pt+dha', best: 'interleave' } as const;
/** The policies by name, and `best` with each other order of eviction, with shedding, and with the earliest end. */
const systems: readonly {
  name: string;
  mode: (typeof modes)[keyof typeof modes];
  policy: SimulationSettings['policy'];
}[] = [
  ...policyNames.map((name) => ({ name, mode: modes[name], policy: policies[name] })),
  ...(['lru-suffix', 'gdsf', 'oracle'] as const).map((eviction) => ({
    name: `best+${eviction}`,
    mode: modes.best,
    policy: { ...policies.best, eviction },
  })),
  { name: 'best+shed', mode: modes.best, policy: { ...policies.best, admission: 'shed' } },
  { name: 'best+earliest', mode: modes.best, policy: { ...policies.best, offload: 'earliest-finish' } },
  { name: 'best+modulo', mode: modes.best, policy: { ...policies.best, routing: 'modulo' } },
];

interface Scene {
  readonly machine?: Machine;
  readonly trace: Trace;
  readonly of?: Partial<FunctionSettings>;
  readonly sheet?: (sheet: OfferSheet, functionIndex: number) => OfferSheet;
  readonly batchMax?: number;
  readonly settings?: Partial<SimulationSettings>;
  readonly options?: Partial<SimulatorOptions>;
  readonly fleet?: Partial<FleetSettings>;
}

const p3 = loadMachine('p3.8xlarge');
const names = (count: number, model = 'bert-base'): string[] =>
  Array.from({ length: count }, (_, index) => `${model}/${index}`);
const modelOf = (name: string): string => name.slice(0, name.lastIndexOf('/'));
const mixed = ['bert-base', 'roberta-base', 'gpt2', 'resnet50', 'bert-large'].flatMap((model) => names(40, model));

const seed = 11;
const poisson = (functions: number, ratePerS: number, requests = 900): Trace =>
  poissonTrace({ functionNames: names(functions), ratePerS, requests, seed });
/** A burst of calls on one function after the other. */
const bursts: Trace = {
  functionNames: names(60),
  *invocations() {
    for (let call = 0; call < 960; call++) {
      yield { arrivalMs: Math.floor(call / 24) * 2000, functionIndex: Math.floor(call / 24) };
    }
  },
};
/** Nine of ten calls are of function 0. */
const hotOne: Trace = {
  functionNames: names(21),
  *invocations() {
    const random = new Xoshiro(seed);
    let arrivalMs = 0;
    for (let call = 0; call < 900; call++) {
      arrivalMs += random.exponential(600) * 1000;
      yield { arrivalMs, functionIndex: random.uniform() < 0.9 ? 0 : 1 + random.below(20) };
    }
  },
};
const session = { latencyMs: 60, cores: 8, loadMs: 500, bytes: 438e6 };
const slos = [20, 100, 1000];

const scenes: Record<string, Scene> = {
  'all functions fit': { trace: poisson(100, 100) },
  'some functions are absent': { trace: poisson(260, 100) },
  'past what the links carry': { trace: poisson(400, 300) },
  'past what the GPUs execute': { trace: poisson(60, 800) },
  'popularity by Zipf': {
    trace: poissonTrace({
      functionNames: names(400),
      ratePerS: 150,
      requests: 900,
      seed,
      popularity: { kind: 'zipf', exponent: 1 },
    }),
  },
  'one hot function': { trace: hotOne },
  'SLOs of 20, 100 and 1000 ms': {
    trace: poisson(300, 100),
    sheet: (sheet, index) => ({ ...sheet, sloMs: slos[index % slos.length]! }),
  },
  'an SLO between a warm and a cold start': { trace: poisson(200, 60), of: { sloMs: 15 } },
  'several models': {
    trace: poissonTrace({ functionNames: mixed, ratePerS: 120, requests: 900, seed }),
  },
  'a day of Azure': {
    trace: limitTrace(azureLikeTrace({ functionNames: names(252), ratePerS: 150, minutes: 1, seed }), 900),
  },
  'a rate that swings': {
    trace: diurnalTrace({ functionNames: names(200), ratePerS: 120, requests: 900, seed, periodMs: 10_000 }),
  },
  'bursts of some functions': {
    trace: burstTrace({
      functionNames: names(200),
      ratePerS: 150,
      requests: 900,
      seed,
      height: 4,
      everyS: 4,
      lengthS: 1,
    }),
  },
  'bursts on absent functions': { trace: bursts },
  'the CPU takes what overflows': { trace: poisson(360, 100), of: { cpu: session }, settings: { cpuMemoryBytes: 3e9 } },
  'the CPU alone': {
    machine: loadMachine('cpu-16'),
    trace: poisson(60, 30),
    of: { cpu: session },
    settings: { cpuMemoryBytes: 6e9 },
  },
  'workers behind a queue': {
    trace: poisson(360, 120),
    of: { cpu: { latencyMs: 90, cores: 16 }, workers: { latencyMs: 50 } },
    settings: { workers: { slots: 4, roundTripMs: 10 } },
  },
  'host memory in front of a disk': {
    trace: poisson(200, 20, 600),
    settings: { host: { capacityBytes: 60e9, diskGBps: 1 } },
  },
  'priorities, pinned functions and some that are kept off': {
    trace: poisson(260, 150),
    of: { cpu: session },
    sheet: (sheet, index) => ({
      ...sheet,
      priority: index % 7 === 0 ? 1 : 0,
      pinned: index % 50 === 0,
      ...(index % 11 === 0 ? { gpus: sheet.gpus.map(() => null) } : {}),
    }),
  },
  'calls that share runs': { trace: poisson(8, 900), batchMax: 8 },
  'a GPU is lost and comes back': {
    trace: poisson(220, 100),
    options: {
      gpuChanges: [
        { atMs: 3000, gpu: 1, kind: 'gpu-lost' },
        { atMs: 6000, gpu: 1, kind: 'gpu-back' },
      ],
    },
  },
  'eight GPUs of another kind': { machine: loadMachine('h100x8'), trace: poisson(600, 400) },
  'a hot function on thirty-two GPUs': {
    machine: manyGpus(32),
    trace: poisson(1, 6000),
  },
  'many functions on thirty-two GPUs': { machine: manyGpus(32), trace: poisson(900, 800) },
  'a fleet that loses a host': {
    trace: poisson(400, 400),
    fleet: { router: 'homes', failures: [{ host: 1, atMs: 800, backMs: 1600 }] },
  },
  'a fleet as one machine': { trace: poisson(400, 400), fleet: { router: 'one' } },
};

const ignored: ReplayObserver = { outcome: () => undefined, eviction: () => undefined, busy: () => undefined };

const caches = new Map<string, OfferCache>();

function replay(
  { machine = p3, trace, of, sheet = (each) => each, batchMax = 1, settings, options, fleet }: Scene,
  { mode, policy }: (typeof systems)[number],
): void {
  const key = `${machine.name} ${mode} ${batchMax}`;
  const offers = caches.get(key) ?? new OfferCache(machine, mode, { batchMax });
  caches.set(key, offers);
  const all: SimulationSettings = {
    machine,
    policy,
    sheetOf: (index, name) => sheet(offers.sheet(modelOf(name), { sloMs: 100, ...of }), index),
    ...settings,
  };
  if (fleet !== undefined) {
    const hosts = Array.from({ length: 4 }, () => all);
    const common = { roundTripMs: 1, networkGBps: 3, callBytes: 1000, contentBytes: () => 440e6, seed: 5 };
    simulateFleet(trace, hosts, { router: 'homes', failures: [], ...common, ...fleet }, ignored);
  } else if (options === undefined) simulate(trace, all, ignored);
  else runSimulation(trace, { ...simulatorOptions(all, ignored), ...options });
}

test.each(Object.entries(scenes))('decisions are as recorded: %s', (name, scene) => {
  // The oracle knows the arrivals of one host alone, which does not change.
  const isPlain = scene.fleet === undefined && scene.options === undefined;
  const decided = systems
    .filter(({ policy }) => isPlain || policy.eviction !== 'oracle')
    .map((system) => {
      const { decisions, hash } = decisionsOf(() => replay(scene, system));
      return [system.name, `${decisions} ${hash}`] as const;
    });
  found[name] = Object.fromEntries(decided);
  expect(found[name]).toEqual(recorded(name));
});

test.each<[string, fc.Arbitrary<Scenario>]>([
  ['random scenarios', scenario],
  ['random scenarios with calls that can share runs', joinedScenario],
])('decisions are as recorded: %s', (name, scenarios) => {
  const hashes = {
    'everything is in host memory': new DecisionHash(),
    'a disk behind host memory': new DecisionHash(),
  };
  for (const given of fc.sample(scenarios, { numRuns: 300, seed })) {
    const hash = hashes[given.host === undefined ? 'everything is in host memory' : 'a disk behind host memory'];
    play(given, nothingPlayed(), { makeScheduler: (options) => hashed(options, hash) });
  }
  found[name] = Object.fromEntries(
    Object.entries(hashes).map(([kind, hash]) => [kind, `${hash.decisions} ${hash.text}`]),
  );
  expect(found[name]).toEqual(recorded(name));
});

function hashed(options: ConstructorParameters<typeof Scheduler>[0], hash: DecisionHash): Scheduler {
  const scheduler = new Scheduler(options);
  const handle = scheduler.handle.bind(scheduler);
  scheduler.handle = (event, atMs) => {
    const actions = handle(event, atMs);
    for (const action of actions) hash.action(action);
    return actions;
  };
  return scheduler;
}
