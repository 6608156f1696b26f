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
import type {
  AnatomyAnswer,
  ColdStartAnswer,
  ErrorsAnswer,
  FunctionAnswer,
  FunctionRow,
  FunctionsAnswer,
  GpuMemory,
  GpuStateAnswer,
  EventAnswer,
  HistoryAnswer,
  MemoryAnswer,
  PlacedVersion,
  RecordedColdStarts,
  Resident,
  SecondTotals,
  TickEvent,
} from './api-types.ts';
import { eventText } from './event-text.ts';

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

/** A cold start as it was measured, layer by layer. */
export interface RecordedColdStart extends Omit<ColdStartAnswer, 'latencyMs'> {
  readonly gpuName: string;
  readonly timeline: Timeline;
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

export function historyAnswer({ history }: ViewSources, rangeMs: number, nowMs: number, name?: string): HistoryAnswer {
  const span = history.span(rangeMs, nowMs, name);
  const sinceMs = Math.max(span.fromMs, history.startedAtMs);
  return { ...span, sinceMs, columns: history.columns(span, name), totals: history.totals(span, name) };
}

export function errorsAnswer({ history }: ViewSources, rangeMs: number, nowMs: number): ErrorsAnswer {
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

/** @param sinceMs earlier seconds that were counted in after this time are sent again */
export function tickOf(sources: ViewSources, nowMs: number, sinceMs: number): TickEvent {
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

export async function functionsAnswer(sources: ViewSources, rangeMs: number, nowMs: number): Promise<FunctionsAnswer> {
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
    others,
    notes: notesOf(sources, nowMs),
  };
}

function notesOf({ memory }: ViewSources, nowMs: number): string[] {
  return memory.kills.map(({ atMs, text }) => `${formatMs(nowMs - atMs)} ago ${text}`);
}

function placedVersion(
  { statistics, gpus, outOfService }: ViewSources,
  placed: FunctionVersion,
  pool: PoolState | undefined,
): PlacedVersion {
  const { key, name, version } = placed;
  const state = stateShown(placed, outOfService);
  const onGpu = gpus?.presence(key);
  const counts = statistics.find(key);
  const inPool = pool?.instances.filter((instance) => instance.state !== 'loading') ?? [];
  return {
    name,
    version,
    state: state.status,
    reason: state.status === 'unavailable' ? state.reason : null,
    lastDeath: counts?.lastDeath ?? null,
    residency:
      onGpu !== undefined && onGpu.bytes > 0
        ? onGpu.loading
          ? 'loading'
          : 'gpu'
        : inPool.length > 0
          ? 'cpu'
          : (pool?.instances.length ?? 0) > 0
            ? 'loading'
            : 'cold',
    gpuBytes: onGpu?.bytes ?? 0,
    gpus: onGpu?.gpus ?? [],
    gpuState: onGpu?.state ?? null,
    coldCause: onGpu?.coldCause ?? null,
    hostBytes: inPool.reduce((sum, { bytes }) => sum + bytes, 0) + (onGpu?.pinnedBytes ?? 0),
    hits: (counts?.successes ?? 0) - (counts?.coldStarts ?? 0),
    coldStarts: counts?.coldStarts ?? 0,
    diskStarts: counts?.diskStarts ?? 0,
    evictions: Object.fromEntries(counts?.evictions ?? []),
    overflows: Object.fromEntries(counts?.overflows ?? []),
    brought: counts?.brought ?? 0,
    plan: onGpu?.plan ?? (pool?.configuration === undefined ? '' : `CPU ${groupsText(pool.configuration.groups)}`),
    rows: rowsView(placed) ?? null,
    waiting: pool?.queueLength ?? 0,
    instances: pool?.instances.length ?? 0,
    lastUseMs: counts?.lastCallAtMs ?? 0,
  };
}

function rowOf(
  sources: ViewSources,
  version: FunctionVersion,
  pool: PoolState | undefined,
  rangeMs: number,
  nowMs: number,
): FunctionRow {
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
    goodputShare: ended === 0 ? null : totals.in_slo / ended,
    requestsPerSecond:
      totals.offered / Math.max(1, (Math.min(span.toMs, nowMs) - Math.max(span.fromMs, history.startedAtMs)) / 1000),
    coldShare: answered === 0 ? null : totals.cold / answered,
    diskBytes: version.modelBytes,
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
): Omit<FunctionAnswer, 'trouble'> {
  const { history, registry, pools } = sources;
  const { name } = version;
  const state = pools.state(version.key);
  const { scale, counts } = history.distribution(history.span(rangeMs, nowMs, name), name);
  return {
    row: rowOf(sources, version, state, rangeMs, nowMs),
    versions: registry.versions(name).map((each) => each.version),
    history: historyAnswer(sources, rangeMs, nowMs, name),
    parts: history.meanParts(history.span(rangeMs, nowMs, name), name),
    latencies: { boundsMs: counts.map((_, bucket) => boundMs(scale, bucket)), counts },
    events: history.eventLog.of(name).map(eventAnswer),
    prediction: history.predictions(name),
    curl: curlCall(baseUrl, version),
    calledAs: calledAs(),
    handler: version.handlerPath !== undefined,
    example: version.settings.example ?? null,
    ...(version.metadata === undefined ? { inputs: [], outputs: [] } : namedTensors(version.metadata)),
  };
}

export function eventAnswer(event: HostEvent): EventAnswer {
  return {
    atMs: event.atMs,
    kind: event.kind,
    functionName: 'functionName' in event ? event.functionName : null,
    ...eventText(event),
  };
}

export function recordedColdStarts({ gpus }: ViewSources): RecordedColdStarts {
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

export async function memoryAnswer(sources: ViewSources): Promise<MemoryAnswer> {
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
      totalBytes: memory.totalBytes,
      parts: partsShown(memory.parts, used.parts),
      processes: used.processes.map(({ pid, part, residentBytes }) => ({
        pid,
        bytes: residentBytes,
        words: part === undefined ? 'other' : partWords(part),
      })),
      kills: memory.kills.map(({ atMs, text }) => ({ atMs, text })),
      sessions: inPools,
      pinned: gpus?.hostTier() ?? [],
    },
    disk: {
      totalBytes: dependencies.disk?.totalBytes ?? null,
      freeBytes: dependencies.disk?.freeBytes ?? null,
      parts: onDisk?.parts ?? null,
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

function partsShown(parts: MemoryDivision, used: UsedMemory['parts']): MemoryAnswer['host']['parts'] {
  return (Object.keys(memoryParts) as MemoryPart[])
    .map((part) => ({ part, words: memoryParts[part], bytes: parts[part], usedBytes: used[part] ?? 0 }))
    .filter(({ bytes, usedBytes }) => bytes > 0 || usedBytes > 0)
    .sort((one, other) => other.usedBytes - one.usedBytes || other.bytes - one.bytes);
}
