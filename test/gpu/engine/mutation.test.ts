/** Omits each wait of the engine in turn: the race checks or the answers must notice. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cuda } from '../../../src/gpu/driver/types.ts';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import type { StreamsOptions } from '../../../src/gpu/engine/streams.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { makeChain, planFor, wordsOf, type Chain, type PlanShape } from './chains.ts';
import { ModelCuda } from './model-cuda.ts';

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-mutation-'));
});

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const layerWords = [512, 0, 300, 1024, 64, 700, 900, 128];

type Scenario = (engine: Engine, chains: readonly Chain[]) => Promise<void>;

async function run(engine: Engine, chain: Chain, shape: PlanShape): Promise<void> {
  await engine.run(chain.key, chain.program, [chain.input], { gpu: shape.primary ?? 0, plan: planFor(chain, shape) });
}

const modes: readonly [string, PlanShape][] = [
  ['baseline', { mode: 'baseline' }],
  ['pipeswitch', { mode: 'pipeswitch' }],
  ['dha', { mode: 'dha' }],
  ['pt', { mode: 'pt', secondaries: [1] }],
  ['pt over four', { mode: 'pt', secondaries: [1, 2, 3] }],
  ['pt+dha', { mode: 'pt+dha', secondaries: [1] }],
  ['interleave', { mode: 'interleave', secondaries: [1, 2] }],
];

const scenarios: readonly [string, Scenario][] = [
  ...modes.map(([name, shape]): [string, Scenario] => [
    `cold in mode ${name}`,
    (engine, [chain]) => run(engine, chain!, shape),
  ]),
  [
    'a prefix that stays',
    async (engine, [chain]) => {
      await run(engine, chain!, { mode: 'pipeswitch' });
      await engine.trim(chain!.key, 0, 3);
      await run(engine, chain!, { mode: 'pipeswitch' });
    },
  ],
  [
    'bytes that go from a running function to the next',
    async (engine, [first, second]) => {
      await run(engine, first!, { mode: 'pipeswitch' });
      await engine.bind(second!.key, second!.program, 0);
      // The function is evicted while its second run is under way: its bytes are free at once.
      const running = run(engine, first!, { mode: 'pipeswitch' });
      // By then the run is submitted, and nothing of it has run, which would need turns of the event loop.
      for (let turn = 0; turn < 50; turn++) await Promise.resolve();
      const evicted = engine.evict(first!.key, 0);
      const other = evicted.then(() => run(engine, second!, { mode: 'pipeswitch' }));
      await Promise.all([running, evicted, other]);
    },
  ],
  [
    'layers that are moved together',
    async (engine, [first, second, third]) => {
      await run(engine, first!, { mode: 'pipeswitch' });
      await run(engine, second!, { mode: 'pipeswitch' });
      await engine.trim(first!.key, 0, 2);
      await run(engine, third!, { mode: 'pipeswitch' });
      await run(engine, second!, { mode: 'pipeswitch' });
    },
  ],
];

interface Outcome {
  readonly waits: number;
  readonly noticed: boolean;
}

type DropWait = StreamsOptions['dropWait'];
/** Plays a scenario once more on the same driver; a wait may be left out. */
type Play = (dropWait?: DropWait) => Promise<Outcome>;
type OnDriver = (scenario: Scenario, gpuBytes: number, work: (play: Play) => Promise<void>) => Promise<void>;

async function playOn(cuda: Cuda, scenario: Scenario, gpuBytes: number, dropWait: DropWait): Promise<number> {
  const streams = dropWait === undefined ? {} : { dropWait };
  // With a short lookahead, copies and launches are submitted in turns.
  const engine = new Engine(cuda, { hostBytes: 2 ** 20, slabBytes: 2 ** 16, gpuBytes, lookaheadBytes: 2048, streams });
  const chains = ['a', 'b', 'c'].map((name) => makeChain({ folder, name, layerWords }));
  for (const { key, program } of chains) engine.addFunction(key, program.layout);
  for (const { key } of chains) await engine.stage(key);
  await scenario(engine, chains);
  const { waits } = engine;
  await engine.close();
  return waits;
}

const onModel: OnDriver = (scenario, gpuBytes, work) =>
  work(async (dropWait) => {
    const cuda = new ModelCuda({ devices: 4, deviceBytes: 2 ** 20 });
    const waits = await playOn(cuda, scenario, gpuBytes, dropWait);
    return { waits, noticed: cuda.races.length > 0 };
  });

/** A missing wait leaves the contexts usable, so one driver serves all engines: each new driver starts threads. */
const onEmulator: OnDriver = (scenario, gpuBytes, work) =>
  withEmulatedCuda({ devices: 4, allow: ['races'] }, async (cuda, emulator) => {
    await work(async (dropWait) => {
      emulator.forget();
      const waits = await playOn(cuda, scenario, gpuBytes, dropWait);
      const { racesFound, faults, unrecordedWaits, freesInUse } = emulator.report();
      expect({ faults, unrecordedWaits, freesInUse }).toEqual({ faults: [], unrecordedWaits: [], freesInUse: [] });
      return { waits, noticed: racesFound > 0 };
    });
  });

describe.each([
  { driver: 'the model driver', on: onModel, isMissing: false, played: scenarios },
  // Much slower, with the same waits. So only some scenarios: several links, moved layers, reused bytes.
  {
    driver: 'the emulated driver',
    on: onEmulator,
    isMissing: emulatorMissing,
    played: scenarios.filter(([name]) => /pt\+dha|next|together/.test(name)),
  },
])('on $driver', ({ on, isMissing, played }) => {
  it.skipIf(isMissing).each(played)('every wait of the scenario %s is needed', async (name, scenario) => {
    const gpuBytes = name.includes('together') ? 38 * 1024 : name.includes('next') ? 20 * 1024 : 256 * 1024;
    const missed: string[] = [];
    await on(scenario, gpuBytes, async (play) => {
      const whole = await play();
      expect(whole.noticed).toBe(false);
      expect(whole.waits).toBeGreaterThan(0);
      for (let dropped = 0; dropped < whole.waits; dropped++) {
        let last = '';
        let noticed = false;
        // If the driver's thread finishes the work before more is submitted, there is no race to notice.
        for (let attempt = 0; attempt < 8 && !noticed; attempt++) {
          ({ noticed } = await play(({ index, by, of }) => {
            if (index === dropped) last = `${index}: ${by} for ${of}`;
            return index === dropped;
          }));
        }
        if (!noticed) missed.push(last);
      }
    });
    expect(missed).toEqual([]);
  });
});

it('the answer of each scenario is right with all waits', async () => {
  const cuda = new ModelCuda({ devices: 2, deviceBytes: 2 ** 20, seed: 5 });
  const engine = new Engine(cuda, { hostBytes: 2 ** 20, slabBytes: 2 ** 16, gpuBytes: 2 ** 17 });
  const chain = makeChain({ folder, name: 'a', layerWords });
  engine.addFunction(chain.key, chain.program.layout);
  await engine.stage(chain.key);
  const { outputs } = await engine.run(chain.key, chain.program, [chain.input], {
    gpu: 1,
    plan: planFor(chain, { mode: 'pt', primary: 1, secondaries: [0] }),
  });
  expect(wordsOf(outputs)).toEqual(chain.expected);
  await engine.close();
});
