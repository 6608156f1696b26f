/**
 * The chosen configuration for a batch against one fat instance and against instances of one thread (Packrat, Figure
 * 4).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { groupsText, sameGroups, PoolTable, type CpuProfile, type PoolGroup } from '../../src/cpu/index.ts';
import { median } from '../shared/statistics.ts';
import { BenchPool, type Subject } from './subject.ts';

export interface BatchOutcome {
  readonly batch: number;
  readonly chosen: readonly PoolGroup[];
  /** Time of the chosen configuration by the profile, with its instances together. */
  readonly expectedMs: number;
  /** Time that Packrat expects: the slowest instance alone. */
  readonly aloneMs: number;
  readonly chosenMs: number;
  readonly fatMs: number;
  readonly thinMs: number;
  /**
   * Speedup of the chosen configuration over the fat and the thin one: medians over turns, each compared within its
   * turn.
   */
  readonly toFat: number;
  readonly toThin: number;
}

/** One configuration for the batch, ready beside the others: an idle pool takes nothing from them. */
interface Contender {
  readonly groups: readonly PoolGroup[];
  readonly pool: BenchPool;
  /** By turn. */
  readonly samples: number[];
}

/** Longer than any batch takes to fill here: all its rows come at once. */
const batchTimeoutMs = 20;
/** By then, threads of the pool that ran before have stopped their active waiting. */
const betweenMs = 3;
const warmBatches = 3;

export async function compareConfigurations(
  subject: Subject,
  options: {
    readonly cores: number;
    readonly batches: readonly number[];
    readonly turns: number;
    readonly random: () => number;
    readonly progress: (text: string) => void;
  },
): Promise<BatchOutcome[]> {
  const { cores, batches, turns, random, progress } = options;
  const { profile } = subject;
  const batchMax = Math.max(...batches);
  const table = new PoolTable(profile, { cores, batchMax, batchTimeoutMs });
  await using fatPool = new BenchPool(subject, cores, batchMax);
  await using thinPool = new BenchPool(subject, cores, batchMax);
  await using otherPool = new BenchPool(subject, cores, batchMax);
  const outcomes: BatchOutcome[] = [];
  for (const batch of batches) {
    const choice = table.fastestForBatch(batch, { kind: 'latency' });
    if (choice === undefined) throw new Error(`nothing was measured for a batch of ${batch}`);
    const count = Math.min(cores, batch);
    const fat: Contender = contender([{ instances: 1, threads: cores, batch }], fatPool);
    const thin: Contender = contender([{ instances: count, threads: 1, batch: Math.ceil(batch / count) }], thinPool);
    // A configuration that is two of the three is measured once.
    const chosen =
      [fat, thin].find(({ groups }) => sameGroups(groups, choice.candidate.groups)) ??
      contender(choice.candidate.groups, otherPool);
    const contenders = [...new Set([fat, thin, chosen])];
    progress(`${subject.name}: batch ${batch}, ${contenders.map(({ groups }) => groupsText(groups)).join(' and ')}`);
    for (const { groups, pool } of contenders) {
      await pool.configure(groups, batchTimeoutMs);
      for (let run = 0; run < warmBatches; run++) await pool.batch(batch);
    }
    for (let turn = 0; turn < turns; turn++) {
      for (const { pool, samples } of shuffled(contenders, random)) {
        await pause(betweenMs);
        samples.push(await pool.batch(batch));
      }
    }
    outcomes.push({
      batch,
      chosen: choice.candidate.groups,
      expectedMs: choice.latencyMs,
      aloneMs: aloneMs(profile, choice.candidate.groups) ?? choice.latencyMs,
      chosenMs: median(chosen.samples),
      fatMs: median(fat.samples),
      thinMs: median(thin.samples),
      toFat: speedup(chosen, fat),
      toThin: speedup(chosen, thin),
    });
  }
  return outcomes;
}

function contender(groups: readonly PoolGroup[], pool: BenchPool): Contender {
  return { groups, pool, samples: [] };
}

function speedup(chosen: Contender, other: Contender): number {
  return median(chosen.samples.map((ms, turn) => (other.samples[turn] ?? ms) / ms));
}

function shuffled<Value>(values: readonly Value[], random: () => number): Value[] {
  return values
    .map((value) => ({ value, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }) => value);
}

/** Time of the measured list; undefined for a configuration that takes its rows one by one. */
function aloneMs({ lists }: CpuProfile, groups: readonly PoolGroup[]): number | undefined {
  return lists.find((list) => sameGroups(list.groups, groups))?.expectedMs;
}
