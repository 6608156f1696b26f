/**
 * `GET /api/trouble`: which functions miss their SLO, since when, and why. A cause is what calls were measured to wait
 * for, and advice follows only from what was measured of that: the page, `turntable top` and `/metrics` say the same.
 */
import { calledAs, formatBytes, formatMs } from '../../tools/index.ts';
import type { CallStage } from '../../cpu/index.ts';
import { isStopped, processorUse } from '../../process/index.ts';
import { fullShare, heldBackShare, ofHost, type History, type HistoryCounts } from '../history/index.ts';
import { missCauses, type MissCause } from '../calls/miss-causes.ts';
import { lateLoopMs, type Overdue } from '../calls/open-calls.ts';
import { answeredOf } from '../calls/placement.ts';
import { mapInSlices } from '../limits/slices.ts';
import type { FunctionVersion } from '../types.ts';
import type { GpuStateAnswer, ViewSources } from './views.ts';

/** A function below this misses its SLO; the table's filter `is:missing` has the same limit. */
const goodputShareMin = 0.99;
/** Fewer calls are no trend: the first call of a function loads its model, and is late. */
const callsMin = 20;
/** A call that is this much older than its SLO, and this old, is stuck: the function has trouble, however few its calls. */
const stuckFactor = 5;
const stuckMs = 5000;
const worstMax = 5;

const causeWords: Readonly<Record<MissCause, string>> = {
  queue: 'waited for a turn',
  load: 'waited for the model',
  handler: 'in the handler',
  model: 'in the model',
  away: 'at workers or other hosts',
  upload: 'receiving the body',
  body: 'decoding large bodies',
  busy: 'waited for a busy host or core',
  unexplained: 'mostly unexplained',
  shed: 'shed',
  failed: 'failed',
};

export type TroubleAnswer = Awaited<ReturnType<typeof troubleAnswer>>;

export async function troubleAnswer(sources: ViewSources, rangeMs: number, nowMs: number) {
  const { registry, history, open } = sources;
  const names = registry.names();
  const overdue = open.overdue();
  let called = 0;
  const refused: { name: string; calls: number }[] = [];
  const missing = await mapInSlices(names, (name): Counted | undefined => {
    const version = registry.find(name);
    if (version === undefined) return undefined;
    const row = counted(history, version, overdue.get(name), rangeMs, nowMs);
    if (row.ended > 0) called++;
    if (row.counts.client > 0) refused.push({ name, calls: row.counts.client });
    return misses(row) ? row : undefined;
  });
  const late = missing.filter((row) => row !== undefined);
  const found = judged(late);
  const stuck = [...overdue.values()];
  return {
    rangeMs,
    atMs: nowMs,
    functions: names.length,
    /** Functions with a call that ended within the range, */
    called,
    /** and those of them with enough calls to judge that answered under 99% within their SLO. */
    missing: found.length,
    /** Missed calls of all other functions: too few to say that these miss their SLO. */
    few: missedOf(late) - missedOf(found),
    /** What this host depends on and does not get; `text`: 'Redis is down: ...'. */
    dependencies: sources.dependencies.troubled(nowMs),
    /** Open calls of all functions that have passed their SLO. */
    overdue: {
      calls: stuck.reduce((sum, { calls }) => sum + calls, 0),
      oldestMs: stuck.reduce((most, { oldestMs }) => Math.max(most, oldestMs), 0),
    },
    /**
     * Calls of all functions that ended by the client's mistake or disconnect, and the function with the most of them.
     */
    refused: {
      calls: refused.reduce((sum, { calls }) => sum + calls, 0),
      functions: refused.length,
      most: refused.toSorted((one, other) => other.calls - one.calls)[0]?.name ?? null,
    },
    /** A sentence for each limit that requests were over: '60 requests were over a limit (429 rate-limited), ...'. */
    limited: overLimits(history, rangeMs, nowMs),
    /** At most five, the one with the most missed calls first. */
    worst: found
      .toSorted((one, other) => other.missed - one.missed)
      .slice(0, worstMax)
      .map((row) => rowOf(sources, row, rangeMs, nowMs)),
  };
}

/** Requests that were one too many: of any path, since a limit may be met before it is known what is called. */
function overLimits(history: History, rangeMs: number, nowMs: number): string[] {
  return history.errors.causes(history.span(rangeMs, nowMs)).flatMap(({ status, code, count }) => {
    if (status !== 429) return [];
    const requests = count === 1 ? '1 request was' : `${count.toLocaleString('en')} requests were`;
    return [`${requests} over a limit (429 ${code}), the latest: ${history.errors.latest(code)}.`];
  });
}

interface Counted {
  readonly version: FunctionVersion;
  readonly counts: HistoryCounts;
  readonly now: Overdue | undefined;
  readonly missed: number;
  readonly ended: number;
  /** Its own calls are enough to say that it misses its SLO. */
  readonly isSure: boolean;
}

function counted(
  history: History,
  version: FunctionVersion,
  now: Overdue | undefined,
  rangeMs: number,
  nowMs: number,
): Counted {
  const { name, settings } = version;
  const counts = history.counts(history.span(rangeMs, nowMs, name), name);
  const missed = counts.late + counts.shed + counts.failed + (now?.calls ?? 0);
  const ended = missed + counts.in_slo;
  const isSure = ended >= callsMin || isStuckFor(now?.oldestMs ?? 0, settings.sloMs);
  return { version, counts, now, missed, ended, isSure };
}

const misses = ({ counts, ended }: Counted): boolean => ended > 0 && counts.in_slo / ended < goodputShareMin;

/** Why calls of one function missed its SLO, however few they are; null if under 1% of them did. */
export function troubleOf(
  sources: ViewSources,
  version: FunctionVersion,
  rangeMs: number,
  nowMs: number,
): TroubleRow | null {
  const row = counted(sources.history, version, sources.open.overdue().get(version.name), rangeMs, nowMs);
  return misses(row) ? rowOf(sources, row, rangeMs, nowMs) : null;
}

const missedOf = (rows: readonly Counted[]): number => rows.reduce((sum, { missed }) => sum + missed, 0);

/** Functions with few calls each are trouble only together: where more of their calls than first ones miss. */
function judged(rows: readonly Counted[]): readonly Counted[] {
  const few = rows.filter(({ isSure, missed }) => !isSure && missed > 1);
  const areSure = few.reduce((sum, { missed }) => sum + missed, 0) >= callsMin;
  return rows.filter((row) => row.isSure || (areSure && few.includes(row)));
}

/** Missed calls of one cause; `words`: 'waited for a turn'. */
export interface MissedBy {
  readonly cause: MissCause;
  readonly words: string;
  readonly calls: number;
}

export type TroubleRow = ReturnType<typeof rowOf>;

function rowOf(sources: ViewSources, row: Counted, rangeMs: number, nowMs: number) {
  const { version, counts, now, missed, ended } = row;
  const { name } = version;
  const { history } = sources;
  const { turn, load, handler, model, away } = stagesNow(now, version.settings.sloMs);
  const calls: Record<MissCause, number> = {
    queue: counts.queue + turn,
    load: counts.load + load,
    handler: counts.handler + handler,
    model: counts.model + model,
    away: counts.away + away,
    upload: counts.upload,
    body: counts.body,
    busy: counts.busy,
    unexplained: counts.unexplained,
    shed: counts.shed,
    failed: counts.failed,
  };
  const causes = missCauses
    .filter((cause) => calls[cause] > 0)
    .map((cause): MissedBy => ({ cause, words: causeWords[cause], calls: calls[cause] }))
    .toSorted((one, other) => other.calls - one.calls);
  const { atMs, late, shed, failed } = history.columns(history.span(rangeMs, nowMs, name), name);
  const { facts, advice } = explainedAll(sources, row, causes, nowMs - rangeMs);
  const steps = atMs.filter((_, at) => late[at]! + shed[at]! + failed[at]! > 0);
  return {
    name,
    sloMs: version.settings.sloMs,
    ended,
    missed,
    goodputShare: counts.in_slo / ended,
    /** The largest first. */
    causes,
    /** Calls that are open and have passed their SLO; they are among `missed`. */
    overdue: { calls: now?.calls ?? 0, oldestMs: now?.oldestMs ?? 0 },
    /** When the first and the last of the missed calls ended, in steps of some seconds; null while none has. */
    sinceMs: steps[0] ?? null,
    lastMs: steps.at(-1) ?? null,
    /** Time of its ended calls beyond the SLO, and as much of it as nothing that was measured explains. */
    lateMs: counts.lateMs,
    unexplainedMs: counts.unexplainedMs,
    /** What was measured that explains the largest cause: 'evicted 12 times for big-3: up to 709 MB of 700 MB used'. */
    facts: [...facts, ...unexplainedText(counts)].join('; '),
    /** What to do; null where nothing measured says so. */
    advice,
    /** Calls that ended by the client's mistake or disconnect; the other numbers do not include them. */
    clientErrors: counts.client,
  };
}

/** Overdue calls by stage. Where one of a function's own calls is stuck, those that wait for a turn wait for it. */
function stagesNow(now: Overdue | undefined, sloMs: number): Record<CallStage, number> {
  const stages = { turn: 0, load: 0, handler: 0, model: 0, away: 0, ...now?.stages };
  const stuck = (['load', 'handler', 'model', 'away'] as const).find((each) =>
    isStuckFor(now?.longestMs[each] ?? 0, sloMs),
  );
  return stuck === undefined ? stages : { ...stages, turn: 0, [stuck]: stages[stuck] + stages.turn };
}

const isStuckFor = (ms: number, sloMs: number): boolean => ms >= Math.max(stuckMs, stuckFactor * sloMs);

interface Explained {
  readonly facts: readonly string[];
  readonly advice: readonly string[];
}

/** A second cause with this share of the missed calls is to be mended as well. */
const secondShareMin = 0.2;

function explainedAll(
  sources: ViewSources,
  row: Counted,
  causes: readonly MissedBy[],
  sinceMs: number,
): { readonly facts: readonly string[]; readonly advice: string | null } {
  const machine = machineOf(sources, row);
  const missed = causes.reduce((sum, { calls }) => sum + calls, 0);
  const all = causes
    .slice(0, 2)
    .filter(({ calls }, index) => index === 0 || calls >= secondShareMin * missed)
    .map(({ cause }) => explained(sources, row, cause, sinceMs, machine));
  const advice = once(all.flatMap((each) => each.advice));
  return {
    facts: once(all.flatMap(({ facts }) => facts)),
    advice: advice.length === 0 ? null : advice.join(' '),
  };
}

/** Below this share of the time beyond the SLO, what explains the rest is not told. */
const unexplainedShareMin = 0.01;

function unexplainedText({ lateMs, unexplainedMs }: HistoryCounts): readonly string[] {
  if (unexplainedMs < unexplainedShareMin * lateMs || unexplainedMs === 0) return [];
  return [`${percent(unexplainedMs / lateMs)} of ${formatMs(lateMs)} beyond the SLO unexplained`];
}

/** What is true of two causes is said once. */
const once = (texts: readonly string[]): readonly string[] => [...new Set(texts)];

/** What was measured of a cause, and what that advises. */
function explained(
  sources: ViewSources,
  { version, counts }: Counted,
  cause: MissCause,
  sinceMs: number,
  { host, runs: machine }: Machine,
): Explained {
  if (cause === 'queue' || cause === 'load' || cause === 'model' || cause === 'handler') {
    const stopped = instancesStopped(sources, version);
    if (stopped !== undefined) return stopped;
  }
  if (cause === 'queue' || cause === 'load' || cause === 'model') {
    const lost = gpusLost(sources, version, sinceMs, host);
    if (lost !== undefined) return lost;
  }
  const byOthers = machine.isTakenByOthers ? [ownCores] : [];
  switch (cause) {
    case 'load': {
      const why = loads(sources, version.name, sinceMs, machine);
      const disk = waitsForDisk(counts, version.settings.sloMs);
      const facts = [...why.facts, ...disk.facts];
      const advice = [...disk.advice, ...why.advice];
      // A load takes longer where others have the cores: both are to be mended.
      return machine.isTakenByOthers
        ? { facts: [...facts, machine.text], advice: [...advice, ownCores] }
        : { facts, advice };
    }
    case 'queue': {
      const { instances = [], queueLength = 0 } = sources.pools.state(version.key) ?? {};
      const gpus = gpuBusyShares(sources, version);
      // What a silent worker held has come back, and waits here behind what came meanwhile.
      const silent = workersSilent(sources, counts, sinceMs);
      const facts = [...silent.facts, machine.text, ...busyTexts(gpus)];
      // One that runs on GPUs alone has none, and what waited may be over.
      if (instances.length > 0 || queueLength > 0)
        facts.push(`its instances: ${instances.length}, calls that wait for them: ${queueLength}`);
      if (gpus.some(({ share }) => share >= fullShare)) return { facts, advice: [tooMany('GPUs')] };
      const full = machine.isTakenByOthers ? ownCores : tooMany('cores');
      return { facts, advice: [...silent.advice, ...(machine.isFull ? [full] : [])] };
    }
    case 'model': {
      const { facts, advice } = runs(sources, version, machine);
      const gpus = busyTexts(gpuBusyShares(sources, version));
      return { facts: [...facts, machine.text, ...gpus], advice: [...byOthers, ...advice] };
    }
    // Handlers run on cores, wherever the model does.
    case 'handler':
      return {
        facts: [host.text],
        advice: [
          'Its handler takes most of the time: look at what it does and waits for.',
          ...(host.isTakenByOthers ? [ownCores] : []),
        ],
      };
    case 'away': {
      const taking = sources.workers().filter(({ draining }) => !draining).length;
      const silent = workersSilent(sources, counts, sinceMs);
      const slow = 'Workers or other hosts take long to answer: see Machine, Fleet and their logs.';
      return {
        facts: [...silent.facts, `workers that take calls: ${taking}`],
        advice: silent.advice.length === 0 ? [slow] : silent.advice,
      };
    }
    case 'upload':
      return {
        facts: ['its clients took long to send the bodies'],
        advice: ['Look at the clients and the network, or send smaller bodies, such as tensors in binary form.'],
      };
    case 'body':
      return {
        facts: ["decoding took the host's time", host.text],
        advice: ['Send tensors in binary form instead of JSON.', ...(host.isTakenByOthers ? [ownCores] : [])],
      };
    case 'busy': {
      const full = host.isTakenByOthers ? ownCores : 'The cores are full: add cores, workers or hosts.';
      const more = 'Its control group stops it: give that more cores (cpu.max).';
      return { facts: [host.text], advice: [...(host.isHeldBack ? [more] : []), ...(host.isFull ? [full] : [])] };
    }
    case 'unexplained':
      return { facts: [machine.text], advice: byOthers };
    case 'shed':
      return {
        facts: [machine.text],
        advice: ['Calls are turned away that could not be answered in time: add cores, GPUs or workers.', ...byOthers],
      };
    case 'failed':
      return { facts: ['its calls fail'], advice: ['The errors stand on its page and in its log.'] };
  }
}

const tooMany = (what: string): string =>
  `More calls come than ${what} carry: add some, or workers, or set admission to shed.`;

/** Why its runs take too long. */
function runs({ statistics }: ViewSources, { key, settings }: FunctionVersion, machine: Machine['runs']): Explained {
  const { successes = 0, inferMs = 0 } = statistics.find(key) ?? {};
  if (successes === 0) return { facts: ['no run of it has ended yet'], advice: [] };
  const usualMs = inferMs / successes;
  const facts = [`a run takes ${formatMs(usualMs)} in the mean`];
  if (usualMs < settings.sloMs / 2) {
    return { facts, advice: ['Its runs take much longer than before: its log tells of processes that hang or die.'] };
  }
  // How long it would take alone is not known.
  if (machine.isTakenByOthers) return { facts, advice: [] };
  if (machine.isFull) {
    return { facts, advice: ['Runs share full cores: add cores or workers, or let fewer calls run at once.'] };
  }
  const faster = machine.hasRunsOnCores ? 'a smaller model or a GPU' : 'a smaller model';
  return { facts, advice: [`A run takes too long by itself: raise the SLO, or use ${faster}.`] };
}

const goesOn = (what: string, pid: number): string =>
  `A signal or a debugger has stopped ${what}: \`kill -CONT ${pid}\` lets it go on.`;

/** Workers that said nothing any more, if they had calls of the function. */
function workersSilent(sources: ViewSources, { remote, away }: HistoryCounts, sinceMs: number): Explained {
  const lost = eventsOfHost(sources, sinceMs).flatMap(({ workerLost = [] }) => workerLost);
  if (lost.length === 0 || remote + away === 0) return { facts: [], advice: [] };
  const names = someOf([...new Set(lost)]);
  return {
    facts: [`fell silent ${times(lost.length)}: ${names}`],
    advice: [
      `Calls waited for a worker that said nothing any more: see whether ${names} is stopped, starved or cut off.`,
    ],
  };
}

/** Nothing runs in them, whatever the cores do. */
function instancesStopped({ pools }: ViewSources, { key }: FunctionVersion): Explained | undefined {
  const stopped = pools.state(key)?.instances.find(({ pid }) => isStopped(pid));
  if (stopped === undefined) return undefined;
  return { facts: [`its process ${stopped.pid} is stopped`], advice: [goesOn('that process', stopped.pid)] };
}

/** Less than this, and the disk is slow: what a single hard disk reads in a row. */
const diskBytesPerMs = 150e3;

/** Its instances waited for the disk long enough to make a call late. */
function waitsForDisk({ diskBytes, diskMs }: HistoryCounts, sloMs: number): Explained {
  if (diskMs < sloMs / 2) return { facts: [], advice: [] };
  const rate = diskBytes / diskMs;
  const facts = [
    `its instances waited ${formatMs(diskMs)} for ${formatBytes(diskBytes)} from the disk (${formatBytes(rate * 1000)}/s)`,
  ];
  return { facts, advice: rate < diskBytesPerMs ? ['The disk is slow: keep functions and data on a faster one.'] : [] };
}

/** A process that has answered nothing for so long hangs, or is starved. */
const silentMsMax = 2000;
/** Such a function's calls do not wait for the GPU process. */
const withoutGpus: ReadonlySet<GpuStateAnswer['kind']> = new Set(['refused', 'disagreed', 'undecided', 'unsized']);

/** The GPU process hangs, or ended: calls waited for it, whatever the cores did meanwhile. */
function gpusLost(
  { gpus, history }: ViewSources,
  { key }: FunctionVersion,
  sinceMs: number,
  { isTakenByOthers }: MachineFacts,
): Explained | undefined {
  const presence = gpus?.presence(key);
  if (gpus === undefined || presence === undefined || withoutGpus.has(presence.state.kind)) return undefined;
  const { pid, silentMs } = gpus.process();
  if (isStopped(pid)) {
    return { facts: ['the GPU process is stopped'], advice: [goesOn('the GPU process', pid)] };
  }
  const isStarved = isTakenByOthers && processorUse(pid)?.state === 'R';
  if (silentMs >= silentMsMax && !isStarved) {
    return {
      facts: [`the GPU process has not answered for ${formatMs(silentMs)}`],
      advice: ['A GPU process that stays silent is ended and started again.'],
    };
  }
  const reasons = eventsOfHost({ history }, sinceMs).flatMap(({ gpuDown = [] }) => gpuDown);
  if (reasons.length === 0) return undefined;
  return {
    facts: [`the GPU process went down ${times(reasons.length)}: ${reasons.at(-1)}`],
    advice: ["Calls waited for the GPU process: the host's log says what it did before."],
  };
}

const ownCores = 'Other programs use the cores: give Turntable a machine or cores of its own.';

const eventsOfHost = ({ history }: Pick<ViewSources, 'history'>, sinceMs: number) =>
  history.eventLog.of(ofHost).flatMap((event) => (event.kind === 'host' && event.atMs >= sinceMs ? event : []));

/** Why its model was not there when it was called. */
function loads(
  { history, pools, usage }: ViewSources,
  name: string,
  sinceMs: number,
  { hasRunsOnCores }: Machine['runs'],
): Explained {
  const departures = history.eventLog.of(name).filter(({ kind }) => kind === 'eviction' || kind === 'instance-died');
  const inRange = departures.filter(({ atMs }) => atMs >= sinceMs);
  // It may have left before, and have been loaded by the first call of the range.
  const recent = inRange.length > 0 ? inRange : departures.slice(-1);
  const evictions = recent.filter((event) => event.kind === 'eviction');
  const count = (why: string): number => evictions.filter((event) => event.why === why).length;
  const deaths = recent.filter(({ kind }) => kind === 'instance-died').length;
  const [room, reconfigured, idle, unload] = [count('room'), count('reconfigured'), count('idle'), count('unload')];
  const most = Math.max(room, reconfigured, idle, unload, deaths);
  const { memoryUsedBytes: usedNowBytes, memoryBytes } = pools.resources();
  // An eviction leaves less: what was used before it is the reason.
  const memoryUsedBytes = usage
    .recent(samplesRead)
    .reduce((most, sample) => Math.max(most, sample.memoryUsedBytes), usedNowBytes);
  const used = `up to ${formatBytes(memoryUsedBytes)} of ${formatBytes(memoryBytes)} used (cpu.memory)`;
  if (most === 0) {
    const first = 'its first use: nothing had loaded it';
    const isFull = hasRunsOnCores && memoryUsedBytes >= fullMemoryShare * memoryBytes;
    if (!isFull) return { facts: [first], advice: [pinned(name)] };
    return { facts: [`${first}, and memory is full: ${used}`], advice: [moreMemory(name, 'Memory is full')] };
  }
  if (room === most) {
    const others = [...new Set(evictions.flatMap(({ by }) => by ?? []))];
    const onGpus = evictions.filter(({ why, where }) => why === 'room' && where.startsWith('GPU')).length;
    const memory = onGpus * 2 > room ? 'the memory of the GPUs' : used;
    return {
      facts: [`evicted ${times(room)}${others.length === 0 ? '' : ` for ${someOf(others)}`}: ${memory}`],
      advice: [moreMemory(name)],
    };
  }
  if (reconfigured === most) {
    return {
      facts: [`its pool was rebuilt ${times(reconfigured)}`],
      advice: ['Set cpu.reconfigureInterval higher, or cpu.configure to off.'],
    };
  }
  if (deaths === most) {
    return { facts: [`its instances died ${times(deaths)}`], advice: ['Its log says why they died.'] };
  }
  if (unload === most) {
    return {
      facts: [`unloaded, or replaced by another version, ${times(unload)}`],
      advice: ['Who unloads or publishes it stands in the log of the host. A call after that loads it again.'],
    };
  }
  return { facts: [`released ${times(idle)} after it had been idle`], advice: [pinned(name)] };
}

const pin = (name: string): string => `pin it: ${calledAs()} set ${name} pinned=true`;
const pinned = (name: string): string => `To keep it loaded, ${pin(name)}.`;
const moreMemory = (name: string, why = 'Functions evict each other'): string =>
  `${why}: give functions more (cpu.memory, GPUs), or ${pin(name)}.`;
/** The next load evicts beyond it. */
const fullMemoryShare = 0.95;
const times = (count: number): string => (count === 1 ? 'once' : `${count} times`);
const someOf = (names: readonly string[]): string =>
  names.length <= 3 ? names.join(', ') : `${names.slice(0, 3).join(', ')} and ${names.length - 3} more`;

interface MachineFacts {
  readonly text: string;
  readonly isFull: boolean;
  /** The quota of its control group is used up in many periods. */
  readonly isHeldBack: boolean;
  readonly isTakenByOthers: boolean;
}

/** Cores by this host and by others, and how late its event loop was, over the last samples. */
function machineFacts({ usage }: ViewSources): MachineFacts {
  const samples = usage.recent(samplesRead);
  const busy = meanOf(samples.map(({ cores }) => cores));
  const own = meanOf(samples.map(({ ownCores: share, cores }) => share ?? cores));
  const others = Math.max(0, busy - own);
  const loopMs = samples.reduce((most, { loopDelayMs }) => Math.max(most, loopDelayMs), 0);
  const heldBack = meanOf(samples.map((sample) => sample.heldBack));
  const parts = [`cores ${percent(own)} by Turntable, ${percent(others)} by others`];
  if (heldBack >= heldBackShare)
    parts.push(`held back by its quota of cores (cpu.max) ${percent(heldBack)} of the time`);
  if (loopMs >= lateLoopMs) parts.push(`the host's event loop was up to ${formatMs(loopMs)} late`);
  return {
    text: parts.join('; '),
    isFull: busy >= fullShare || heldBack >= heldBackShare,
    isHeldBack: heldBack >= heldBackShare,
    isTakenByOthers: busy >= fullShare && others >= own,
  };
}

/** The machine, and as much of it as matters to a function's runs. */
interface Machine {
  readonly host: MachineFacts;
  readonly runs: MachineFacts & { readonly hasRunsOnCores: boolean };
}

/**
 * Full cores are no reason that calls of a function wait or run long that runs on GPUs or other machines. Calls without
 * an answer may have waited for the GPUs that can have it now, wherever others ran.
 */
function machineOf(sources: ViewSources, { version, counts, now }: Counted): Machine {
  const host = machineFacts(sources);
  const mayRunOnGpus = sources.gpus?.presence(version.key)?.state.whyNot === null;
  const ran = answeredOf(counts);
  const unanswered = counts.in_slo + counts.late - ran + (now?.calls ?? 0);
  const onCores = mayRunOnGpus && (ran === 0 || unanswered > 0) ? false : counts.cpu >= secondShareMin * ran;
  const full = { isFull: host.isFull && onCores, isTakenByOthers: host.isTakenByOthers && onCores };
  return { host, runs: { ...host, ...full, hasRunsOnCores: onCores } };
}

const busyTexts = (gpus: readonly { gpu: number; share: number }[]): string[] =>
  gpus.map(({ gpu, share }) => `GPU ${gpu} ${percent(share)} busy`);

/** How busy the GPUs are that have a function's weights. */
function gpuBusyShares({ gpus, usage }: ViewSources, { key }: FunctionVersion): { gpu: number; share: number }[] {
  const samples = usage.recent(samplesRead);
  return (gpus?.presence(key)?.gpus ?? []).map((gpu) => ({
    gpu,
    share: meanOf(samples.map(({ gpus: shares }) => shares[gpu] ?? 0)),
  }));
}

/** A minute of samples. */
const samplesRead = 12;

const meanOf = (values: readonly number[]): number =>
  values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
const percent = (share: number): string => `${Math.round(100 * share)}%`;
