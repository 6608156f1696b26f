/** What is chosen for a batch against the one fat instance and against instances of one thread (Packrat, Figure 4). */
import { groupsText, sameGroups, PoolTable, type CpuProfile, type PoolGroup } from '../../src/cpu/index.ts';
import { median } from '../servers.ts';
import { BenchPool, type Subject } from './subject.ts';

export interface BatchOutcome {
  readonly batch: number;
  readonly chosen: readonly PoolGroup[];
  /** What the profile says that the chosen one takes, its instances together. */
  readonly expectedMs: number;
  /** What Packrat expects of it: the slowest instance alone. */
  readonly aloneMs: number;
  readonly chosenMs: number;
  readonly fatMs: number;
  readonly thinMs: number;
}

interface Contender {
  readonly groups: readonly PoolGroup[];
  readonly samples: number[];
}

/** Longer than any batch takes to fill here: all its rows come at once. */
const batchTimeoutMs = 20;

export async function compareConfigurations(
  subject: Subject,
  options: {
    readonly cores: number;
    readonly batches: readonly number[];
    readonly rounds: number;
    readonly runs: number;
    readonly progress: (text: string) => void;
  },
): Promise<BatchOutcome[]> {
  const { cores, batches, rounds, runs, progress } = options;
  const { profile } = subject;
  const table = new PoolTable(profile, { cores, batchMax: Math.max(...batches), batchTimeoutMs });
  await using pool = new BenchPool(subject, cores, Math.max(...batches));
  const outcomes: BatchOutcome[] = [];
  for (const batch of batches) {
    const choice = table.fastestForBatch(batch, { kind: 'latency' });
    if (choice === undefined) throw new Error(`nothing was measured for a batch of ${batch}`);
    const fat: PoolGroup[] = [{ instances: 1, threads: cores, batch }];
    const count = Math.min(cores, batch);
    const thin: PoolGroup[] = [{ instances: count, threads: 1, batch: Math.ceil(batch / count) }];
    // A configuration that is two of the three is measured once: it is the same one.
    const contenders: Contender[] = [];
    const enter = (groups: readonly PoolGroup[]): Contender => {
      let contender = contenders.find((each) => sameGroups(each.groups, groups));
      if (contender === undefined) contenders.push((contender = { groups, samples: [] }));
      return contender;
    };
    const [chosen, fatOne, thinOne] = [enter(choice.candidate.groups), enter(fat), enter(thin)];
    for (let round = 0; round < rounds; round++) {
      for (let turn = 0; turn < contenders.length; turn++) {
        // Each goes first as often as any other.
        const { groups, samples } = contenders[(turn + round) % contenders.length]!;
        progress(`${subject.name}: batch ${batch}, ${groupsText(groups)}, round ${round + 1} of ${rounds}`);
        await pool.configure(groups, batchTimeoutMs);
        await pool.batch(batch);
        for (let run = 0; run < runs; run++) samples.push(await pool.batch(batch));
      }
    }
    outcomes.push({
      batch,
      chosen: choice.candidate.groups,
      expectedMs: choice.latencyMs,
      aloneMs: aloneMs(profile, choice.candidate.groups) ?? choice.latencyMs,
      chosenMs: median(chosen.samples),
      fatMs: median(fatOne.samples),
      thinMs: median(thinOne.samples),
    });
  }
  return outcomes;
}

/** Of the list as it was measured; undefined for one that takes its rows one by one. */
function aloneMs({ lists }: CpuProfile, groups: readonly PoolGroup[]): number | undefined {
  return lists.find((list) => sameGroups(list.groups, groups))?.expectedMs;
}
