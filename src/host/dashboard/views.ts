/**
 * The answers of the dashboard's API, built from the parts of the host. Reading them never counts as use of a function.
 */
import type { Dependencies } from '../dependencies.ts';
import type { OpenCalls } from '../calls/open-calls.ts';
import { catalogue, isErrorCode } from '../errors.ts';
import { curlCall } from '../rollout/example-call.ts';
import {
  boundMs,
  type HostEvent,
  type History,
  type HistorySpan,
  type LinkBytes,
  type TrafficTotals,
  type Usage,
} from '../history/index.ts';
import type { Member } from '../../fleet/index.ts';
import type { RedisHealth } from '../../queue/index.ts';
import { groupsText, type CpuPools, type PoolState } from '../../cpu/index.ts';
import { memoryParts, type MemoryDivision, type MemoryPart } from '../../hardware/index.ts';
import { calledAs, formatBytes, formatMs } from '../../tools/index.ts';
import type { MemoryBudgets, UsedMemory } from '../limits/memory-budgets.ts';
import { mapInSlices } from '../limits/slices.ts';
import { namedTensors } from '../infer/model-spec.ts';
import type { OutOfService } from '../calls/out-of-service.ts';
import { answeredOf } from '../calls/placement.ts';
import type { Statistics } from '../records/statistics.ts';
import type { DiskUse } from '../store/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { rowsView, stateShown } from '../rollout/versions.ts';
import type { Timeline } from '../../plan/index.ts';
import { coldStartTimeline } from './cold-start-timeline.ts';
import type { AnatomyAnswer } from './timeline-types.ts';
import { eventText } from './event-text.ts';

/** The state of a function on the GPUs, and why they cannot run it now; null if they can. */
export interface GpuStateAnswer {
  readonly kind:
    | 'absent'
    | 'registering'
    | 'measuring'
    | 'checking'
    | 'planned'
    | 'resident'
    | 'undecided'
    | 'unsized'
    | 'disagreed'
    | 'paused'
    | 'refused'
    | 'lost';
  readonly whyNot: string | null;
}

export interface GpuMemory {
  readonly index: number;
  readonly name: string;
  readonly uuid: string;
  readonly capacityBytes: number;
  readonly residents: readonly Resident[];
}

export interface Resident {
  readonly functionName: string;
  readonly version: string;
  readonly bytes: number;
  /** 'warm', 'partial 40%', 'loading', 'idle', 'busy' */
  readonly state: string;
  /** 0: never. */
  readonly lastUseMs: number;
  /** Why it is there. */
  readonly why: string;
}

/** A function's part in GPU memory, on hosts with GPUs. */
export interface GpuPresence {
  readonly state: GpuStateAnswer;
  readonly bytes: number;
  readonly loading: boolean;
  /** The GPUs that have some of it. */
  readonly gpus: readonly number[];
  /** Why its next start on a GPU will be cold, or its last one was. */
  readonly coldCause: string;
  /** Bytes of its weights in pinned host memory. */
  readonly pinnedBytes: number;
  readonly plan: string;
}

/** A cold start on this host's GPUs, layer by layer. */
export interface RecordedColdStart {
  readonly id: number;
  readonly atMs: number;
  readonly functionName: string;
  readonly gpu: number;
  readonly gpuName: string;
  readonly mode: string;
  readonly timeline: Timeline;
  /** Includes the bytes that a load ahead of the run brought. */
  readonly loadedBytes: number;
  /** How long the run waited for weights: its own, and those on their way when it began. */
  readonly stallMs: number;
  /** Duration of a load ahead of the run; 0 if there was none. */
  readonly aheadMs: number;
  /** Why the weights were missing. */
  readonly cause: string;
}

export interface ViewSources {
  readonly registry: Registry;
  readonly pools: CpuPools;
  readonly outOfService: Pick<OutOfService, 'stopped'>;
  readonly statistics: Statistics;
  readonly history: History;
  readonly open: Pick<OpenCalls, 'overdue'>;
  readonly memory: Pick<MemoryBudgets, 'totalBytes' | 'parts' | 'kills' | 'used'>;
  readonly usage: Usage;
  readonly dependencies: Pick<Dependencies, 'troubled' | 'disk'>;
  /** Absent where functions come from somewhere else. */
  readonly diskUse?: Pick<DiskUse, 'current' | 'latest'> | undefined;
  /** The workers that take overflow; none without Redis. */
  readonly workers: () => readonly Member[];
  readonly redis: () => RedisHealth | undefined;
  /** Name of this host's fleet. */
  readonly fleet?: string | undefined;
  /** Absent on a host without GPUs. */
  readonly gpus?: {
    readonly presence: (key: string) => GpuPresence | undefined;
    /** The GPU process, and how long it has answered nothing. */
    readonly process: () => { readonly pid: number; readonly silentMs: number };
    /** Asks the GPU process for its state, which the functions below return. */
    readonly refresh: () => Promise<void>;
    readonly memory: () => readonly GpuMemory[];
    /** For each GPU, the share of the latest seconds in which it executed or waited for weights. */
    readonly busyShares: () => readonly number[];
    /** Bytes copied over the links so far, at the last refresh. */
    readonly linkBytes: () => readonly LinkBytes[];
    /** Bytes a second of a GPU's link, measured when the host started. */
    readonly linkSpeed: (gpu: number) => number | undefined;
    /** Invocations that the scheduler has not yet placed. */
    readonly waiting: () => number;
    /** Functions with weights in pinned host memory. */
    readonly hostTier: () => readonly Resident[];
    /** The newest first. */
    readonly coldStarts: () => readonly RecordedColdStart[];
  };
}

export type HistoryAnswer = ReturnType<typeof historyAnswer>;

export function historyAnswer({ history }: ViewSources, rangeMs: number, nowMs: number, name?: string) {
  const span = history.span(rangeMs, nowMs, name);
  const sinceMs = Math.max(span.fromMs, history.startedAtMs);
  /** `sinceMs`: where the span's counts begin: its start, or the host's. Rates are over the time from here on. */
  return { ...span, sinceMs, columns: history.columns(span, name), totals: history.totals(span, name) };
}

/** Refused and failed requests of any path, the most frequent causes first; `when`: what leads to this error. */
export type ErrorsAnswer = ReturnType<typeof errorsAnswer>;

export function errorsAnswer({ history }: ViewSources, rangeMs: number, nowMs: number) {
  const span = history.span(rangeMs, nowMs);
  const causes = history.errors.causes(span).map(({ status, code, count, lastMs }) => {
    const when = isErrorCode(code) ? catalogue[code].when : '';
    return { status, code, when, count, lastMs };
  });
  return { stepMs: span.stepMs, columns: history.errors.columns(span), causes };
}

/** Invocations that wait in the pools' queues or for a GPU. */
export const waitingCount = (
  pools: CpuPools,
  gpus: Pick<NonNullable<ViewSources['gpus']>, 'waiting'> | undefined,
): number => pools.states().reduce((sum, { queueLength }) => sum + queueLength, gpus?.waiting() ?? 0);

/** Totals of the second that begins at `atMs`. */
export interface SecondTotals extends TrafficTotals {
  readonly atMs: number;
}

/** The last whole second, and earlier ones that were counted in since shortly before the last tick, in order. */
export type TickEvent = ReturnType<typeof tickOf>;

/** @param sinceMs earlier seconds that were counted in after this time are sent again */
export function tickOf(sources: ViewSources, nowMs: number, sinceMs: number) {
  const { history, pools, statistics, gpus, fleet = null } = sources;
  const second = (atMs: number): SecondTotals => ({
    atMs,
    ...history.totals({ stepMs: 1000, fromMs: atMs, toMs: atMs + 1000 }),
  });
  const atMs = Math.floor(nowMs / 1000) * 1000 - 1000;
  const earlier = history.countedSince(sinceMs, atMs).map(second);
  const waiting = waitingCount(pools, gpus);
  return { ...second(atMs), earlier, waiting, inFlight: statistics.requestsInFlight, fleet };
}

export type FunctionsAnswer = Awaited<ReturnType<typeof functionsAnswer>>;

export async function functionsAnswer(sources: ViewSources, rangeMs: number, nowMs: number) {
  const { registry, pools } = sources;
  const states = new Map(pools.states().map((state) => [state.key, state]));
  const others: PlacedVersion[] = [];
  const rows = await mapInSlices(registry.names(), (name): FunctionRow | undefined => {
    const serving = registry.find(name);
    for (const version of registry.versions(name)) {
      if (version.key === serving?.key) continue;
      const placed = placedVersion(sources, version, states.get(version.key));
      if (placed.gpuBytes > 0 || placed.hostBytes > 0 || placed.instances > 0) others.push(placed);
    }
    return serving && rowOf(sources, serving, states.get(serving.key), rangeMs, nowMs);
  });
  return {
    rangeMs,
    atMs: nowMs,
    functions: rows.filter((row) => row !== undefined),
    /** Versions that do not serve under their function's name, but have weights on a GPU or in host memory. */
    others,
    /** Sentences about the whole host that an operator should read. */
    notes: notesOf(sources, nowMs),
  };
}

function notesOf({ memory }: ViewSources, nowMs: number): string[] {
  return memory.kills.map(({ atMs, text }) => `${formatMs(nowMs - atMs)} ago ${text}`);
}

/** Where one version of a function is loaded, and how its calls went. */
type PlacedVersion = ReturnType<typeof placedVersion>;

function placedVersion(
  { statistics, gpus, outOfService }: ViewSources,
  placed: FunctionVersion,
  pool: PoolState | undefined,
) {
  const { key, name, version } = placed;
  const state = stateShown(placed, outOfService);
  const onGpu = gpus?.presence(key);
  const counts = statistics.find(key);
  const inPool = pool?.instances.filter((instance) => instance.state !== 'loading') ?? [];
  return {
    name,
    version,
    state: state.status,
    /** Why it is unavailable; null if it is not. */
    reason: state.status === 'unavailable' ? state.reason : null,
    /** Why its latest instance died; null if none has. */
    lastDeath: counts?.lastDeath ?? null,
    /** Where its model is now. */
    residency: residencyOf(onGpu, pool, inPool.length > 0),
    gpuBytes: onGpu?.bytes ?? 0,
    /** The GPUs that have some of it. */
    gpus: onGpu?.gpus ?? [],
    /** Null on a host without GPUs. */
    gpuState: onGpu?.state ?? null,
    /** Why its latest cold start on a GPU was cold, or its next one will be; null on a host without GPUs. */
    coldCause: onGpu?.coldCause ?? null,
    hostBytes: inPool.reduce((sum, { bytes }) => sum + bytes, 0) + (onGpu?.pinnedBytes ?? 0),
    /** Answers since the host started that waited for no load. */
    hits: (counts?.successes ?? 0) - (counts?.coldStarts ?? 0),
    /** Answers that did wait. */
    coldStarts: counts?.coldStarts ?? 0,
    /** Of these, those that waited for weights from disk. */
    diskStarts: counts?.diskStarts ?? 0,
    /** Counts by cause; causes of GPU evictions begin with 'gpu '. */
    evictions: Object.fromEntries(counts?.evictions ?? []),
    /** Answers from another place than usual, by `from to reason`: 'gpu cpu slo'. */
    overflows: Object.fromEntries(counts?.overflows ?? []),
    /** Calls that were late at every place, and ran so that the calls behind them find the function there. */
    brought: counts?.brought ?? 0,
    plan: onGpu?.plan ?? (pool?.configuration === undefined ? '' : `CPU ${groupsText(pool.configuration.groups)}`),
    /** Whether its calls share runs; null if it does not want to join any. */
    rows: rowsView(placed) ?? null,
    waiting: pool?.queueLength ?? 0,
    instances: pool?.instances.length ?? 0,
    /** 0: never. */
    lastUseMs: counts?.lastCallAtMs ?? 0,
  };
}

function residencyOf(
  onGpu: GpuPresence | undefined,
  pool: PoolState | undefined,
  hasInstance: boolean,
): 'gpu' | 'loading' | 'cpu' | 'cold' {
  if (onGpu !== undefined && onGpu.bytes > 0) return onGpu.loading ? 'loading' : 'gpu';
  if (hasInstance) return 'cpu';
  return (pool?.instances.length ?? 0) > 0 ? 'loading' : 'cold';
}

/** The version that serves. */
export type FunctionRow = ReturnType<typeof rowOf>;

function rowOf(
  sources: ViewSources,
  version: FunctionVersion,
  pool: PoolState | undefined,
  rangeMs: number,
  nowMs: number,
) {
  const { history } = sources;
  const { name, settings } = version;
  const span: HistorySpan = history.span(rangeMs, nowMs, name);
  const totals = history.totals(span, name);
  const ended = totals.in_slo + totals.late + totals.shed + totals.failed;
  const answered = answeredOf(totals);
  return {
    ...placedVersion(sources, version, pool),
    sloMs: settings.sloMs,
    pinned: settings.pinned,
    priority: settings.priority,
    source: version.source,
    description: settings.description,
    totals,
    /** Share of ended calls that were answered within the SLO; null if none ended. */
    goodputShare: ended === 0 ? null : totals.in_slo / ended,
    requestsPerSecond:
      totals.offered / Math.max(1, (Math.min(span.toMs, nowMs) - Math.max(span.fromMs, history.startedAtMs)) / 1000),
    coldShare: answered === 0 ? null : totals.cold / answered,
    diskBytes: version.modelBytes,
    /** Calls over HTTP since the host started, by status. Only this field counts a client's 400s. */
    statuses: Array.from(sources.statistics.calls().get(name) ?? [], ([status, seconds]) => ({
      status,
      count: seconds.count,
    })).sort((a, b) => a.status - b.status),
  };
}

export function functionAnswer(
  sources: ViewSources,
  version: FunctionVersion,
  rangeMs: number,
  nowMs: number,
  baseUrl: string,
) {
  const { history, registry, pools } = sources;
  const { name } = version;
  const state = pools.state(version.key);
  const { scale, counts } = history.distribution(history.span(rangeMs, nowMs, name), name);
  return {
    row: rowOf(sources, version, state, rangeMs, nowMs),
    versions: registry.versions(name).map((each) => each.version),
    history: historyAnswer(sources, rangeMs, nowMs, name),
    /** Milliseconds that each part of the mean answer took, for each step. */
    parts: history.meanParts(history.span(rangeMs, nowMs, name), name),
    latencies: { boundsMs: counts.map((_, bucket) => boundMs(scale, bucket)), counts },
    events: history.eventLog.of(name).map(eventAnswer),
    prediction: history.predictions(name),
    /** A command that calls it. */
    curl: curlCall(baseUrl, version),
    /** The words for `turntable` on this host's machine, such as `node bin/turntable.js`. */
    calledAs: calledAs(),
    handler: version.handlerPath !== undefined,
    example: version.settings.example ?? null,
    ...(version.metadata === undefined ? { inputs: [], outputs: [] } : namedTensors(version.metadata)),
  };
}

/** An event: `kind` for programs, `text` for people. */
export type EventAnswer = ReturnType<typeof eventAnswer>;

export function eventAnswer(event: HostEvent) {
  return {
    atMs: event.atMs,
    kind: event.kind,
    functionName: 'functionName' in event ? event.functionName : null,
    ...eventText(event),
  };
}

/** The newest first. */
export type RecordedColdStarts = ReturnType<typeof recordedColdStarts>;

export function recordedColdStarts({ gpus }: ViewSources) {
  const coldStarts = gpus?.coldStarts() ?? [];
  return {
    coldStarts: coldStarts.map(({ gpuName: _name, timeline: { latencyMs }, ...rest }) =>
      Object.assign(rest, { latencyMs }),
    ),
  };
}

/** Undefined if it is not kept any more. */
export function recordedAnatomy({ gpus }: ViewSources, id: number): AnatomyAnswer | undefined {
  const found = gpus?.coldStarts().find((coldStart) => coldStart.id === id);
  if (found === undefined) return undefined;
  const { gpu, gpuName, mode, timeline, loadedBytes, atMs, stallMs, aheadMs, cause } = found;
  const ahead = aheadMs > 0 ? `, loaded ahead of the run for ${Math.round(aheadMs)} ms` : '';
  return {
    provenance: `measured on GPU ${gpu} (${gpuName}) at ${new Date(atMs).toISOString()}; ${cause}${ahead}`,
    timelines: [coldStartTimeline(mode, timeline, loadedBytes, Math.max(stallMs, timeline.stallMs))],
  };
}

export type MemoryAnswer = Awaited<ReturnType<typeof memoryAnswer>>;

export async function memoryAnswer(sources: ViewSources) {
  const { registry, pools, statistics, memory, gpus, dependencies, diskUse } = sources;
  const versions = registry.names().flatMap((name) => registry.versions(name));
  const byKey = new Map(versions.map((version) => [version.key, version]));
  const lastUseMs = (key: string): number => statistics.find(key)?.lastCallAtMs ?? 0;
  const inPools = pools.states().flatMap(({ key, instances }): Resident[] => {
    const version = byKey.get(key);
    if (version === undefined) return [];
    return instances.map(({ pid, state, bytes, holdsModel = true }) => ({
      functionName: version.name,
      version: version.version,
      bytes,
      state,
      lastUseMs: lastUseMs(key),
      why:
        state === 'loading'
          ? `process ${pid} is loading the model for the CPU pool`
          : `process ${pid} of the CPU pool${holdsModel ? '' : ', with the handler alone'}` +
            (version.settings.pinned ? '; the function is pinned' : ''),
    }));
  });
  const used = memory.used();
  const onDisk = await diskUse?.current();
  return {
    gpus: gpus?.memory() ?? [],
    host: {
      /** What this host may use. */
      totalBytes: memory.totalBytes,
      /** How it is divided, what is used most first: `bytes` is the limit of each. */
      parts: partsShown(memory.parts, used.parts),
      /** The host and its children with what they have in memory (RES of `top`), the largest first. */
      processes: used.processes.map(({ pid, part, residentBytes }) => ({
        pid,
        bytes: residentBytes,
        words: part === undefined ? 'other' : partWords(part),
      })),
      /** Processes that the kernel ended for lack of memory, the newest first, with what was done about it. */
      kills: memory.kills.map(({ atMs, text }) => ({ atMs, text })),
      /** What the part `sessions` holds: processes of the CPU pools with their models. */
      sessions: inPools,
      /** What the part `pinned` holds: weights for GPUs. */
      pinned: gpus?.hostTier() ?? [],
    },
    /** The data folder's disk; null where the system does not tell. */
    disk: {
      totalBytes: dependencies.disk?.totalBytes ?? null,
      freeBytes: dependencies.disk?.freeBytes ?? null,
      parts: onDisk?.parts ?? null,
      /** `bytes`: those that no other version has. */
      residents: await mapInSlices(versions, (version) => {
        const uploaded = onDisk?.versions.get(version.key);
        const why = version.source === 'folder' ? 'a folder function' : 'published to this host';
        const shared = uploaded?.shared ?? 0;
        return {
          functionName: version.name,
          version: version.version,
          bytes: uploaded?.own ?? version.modelBytes,
          sharedBytes: shared,
          state: version.state.status,
          lastUseMs: lastUseMs(version.key),
          why: shared === 0 ? why : `${why}; it shares ${formatBytes(shared)} with other versions`,
        };
      }),
    },
  };
}

/** The GPU process counts as what it holds most of. */
const partWords = (part: MemoryPart): string => (part === 'pinned' ? memoryParts.gpuProcess : memoryParts[part]);

function partsShown(parts: MemoryDivision, used: UsedMemory['parts']) {
  return (Object.keys(memoryParts) as MemoryPart[])
    .map((part) => ({ part, words: memoryParts[part], bytes: parts[part], usedBytes: used[part] ?? 0 }))
    .filter(({ bytes, usedBytes }) => bytes > 0 || usedBytes > 0)
    .sort((one, other) => other.usedBytes - one.usedBytes || other.bytes - one.bytes);
}
