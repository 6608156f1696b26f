/** The conclusion of a report, in at most two sentences. */
import { count, ms, percent } from './tables.ts';
import type { IntervalRow, Report } from './types.ts';

/** Share of the requests that must be answered within their SLO for a machine to be enough. */
export const goodputWanted = 0.99;
/** Above it a GPU has no time left for a burst. */
const busyShare = 0.85;
/** If this share of the requests waits for weights, the verdict says so. */
const loadedShare = 0.1;

export type Judged = Omit<Report, 'verdict'>;

/** What a call of a function takes at best, where nothing else waits; Infinity: no place runs it. */
export interface LeastTimes {
  readonly sloMs: number;
  /** With everything loaded. */
  readonly warmMs: number;
}

/** A function of which no call was answered in time. */
export interface HopelessFunction extends LeastTimes {
  readonly name: string;
  readonly requests: number;
}

/** Whether the machine was enough, and otherwise which resource most of the missing requests needed. */
export function verdictOf(report: Judged, hopeless: readonly HopelessFunction[] = []): string {
  const { goodput, requests, p99_ms: p99 } = report;
  if (requests === 0 || goodput === null) return 'No request was replayed.';
  const met = `${percent(goodput)} of ${count(requests)} requests were answered within their SLO`;
  if (goodput >= goodputWanted) return `Enough: ${met}, p99 ${ms(p99)}.`;
  return `Not enough: ${met} (${percent(goodputWanted)} would be). ${hopelessReason(report, goodput, hopeless) ?? reasonOf(report, goodput)}.`;
}

const causes = ['nowhere', 'run'] as const;

const causeOf = ({ sloMs, warmMs }: LeastTimes) =>
  warmMs === Infinity ? 'nowhere' : warmMs > sloMs ? 'run' : undefined;

/** If most missed calls are of functions that could have none in time: why that is, and what would serve them. */
function hopelessReason(
  { requests, shed, gpus }: Judged,
  goodput: number,
  hopeless: readonly HopelessFunction[],
): string | undefined {
  for (const cause of causes) {
    const those = hopeless.filter((each) => causeOf(each) === cause);
    const theirs = those.reduce((sum, each) => sum + each.requests, 0);
    const [first] = those;
    if (first === undefined || theirs < (requests * (1 - goodput)) / 2) continue;
    const all = theirs === requests ? `All ${count(theirs)}` : `${count(theirs)} of them`;
    const name = `'${first.name}'${those.length === 1 ? '' : ` and ${count(those.length - 1)} more`}`;
    const whether = shed > 0 ? 'were refused' : 'came late';
    const wanted = `an SLO of ${ms(first.sloMs)}`;
    const served = shed > 0 ? '; --admission best-effort would answer them late' : '';
    switch (cause) {
      case 'nowhere':
        return (
          `${all} failed, because no place runs ${name}: ` +
          (gpus.length === 0
            ? 'the machine has no GPU, and --cpu offers it no run that its cores allow; --cpu MODEL=TIME@CORES would serve it'
            : 'no GPU has memory for it, and --cpu offers it no run; a larger GPU, a smaller --reserve or --cpu would serve it')
        );
      case 'run':
        return (
          `${all} ${whether}, because a run of ${name} takes ${ms(first.warmMs)} with everything loaded, and ${wanted} ` +
          `is less: a longer one or a faster machine would have them in time${served}`
        );
    }
  }
  return undefined;
}

function reasonOf(report: Judged, goodput: number): string {
  const { requests, shed, failed } = report;
  const late = Math.round(requests * (1 - goodput)) - shed - failed;
  if (failed > shed && failed > late) {
    const [[reason] = ['unknown']] = Object.entries(report.failures_by_reason).sort(
      ([, one], [, other]) => other - one,
    );
    return `${count(failed)} failed, most for '${reason}'`;
  }
  const what = shed > late ? `${count(shed)} were shed` : `${count(late)} came late`;
  const settled = settledGoodput(report);
  if (settled >= goodputWanted) {
    return `${what}, nearly all while memory was filled: ${percent(settled)} in the second half (--warmup leaves the beginning out)`;
  }
  const { gpus, host_memory: memory, cold_start_rate: cold, partial_start_rate: partial } = report;
  const waited = report.disk_starts ?? 0;
  const hasDiskShort = waited >= (requests * (1 - goodput)) / 2 || (memory?.disk_reads ?? 0) >= requests * loadedShare;
  if (memory?.exceeded === true && hasDiskShort) {
    return (
      `${what}: ${count(waited)} calls waited for ${count(memory.disk_reads)} reads from disk, so more host memory or a ` +
      'faster disk is needed'
    );
  }
  const busy = gpus.reduce((sum, { utilisation }) => sum + utilisation, 0) / Math.max(1, gpus.length);
  const loaded = (cold ?? 0) + (partial ?? 0);
  if (busy >= busyShare)
    return `${what}: the GPUs execute ${percent(busy)} of the time, so more or faster ones are needed`;
  if (gpus.length > 0 && loaded >= loadedShare) {
    return `${what}: ${percent(loaded)} waited for weights, so more GPU memory or faster links are needed`;
  }
  return `${what}: the mean wait for a turn is ${ms(report.queue_mean_ms)}, so bursts need more places to run`;
}

/** Goodput of the second half of the replay; 0 if there is none. */
function settledGoodput({ timeline, per_minute: minutes }: Judged): number {
  const rows: readonly IntervalRow[] = timeline.length > 0 ? timeline : minutes;
  const half = rows.slice(Math.ceil(rows.length / 2));
  const requests = half.reduce((sum, row) => sum + row.requests, 0);
  const met = half.reduce((sum, row) => sum + row.requests * (row.goodput ?? 0), 0);
  return requests === 0 ? 0 : met / requests;
}
