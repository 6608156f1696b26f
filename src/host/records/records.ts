/** The host's memory of its functions: statistics, history, and a log for each. */
import type { Logger } from 'pino';
import {
  groupsText,
  stoppedText,
  type DiskWait,
  type GivenUp,
  type Loaded,
  type Reconfigured,
  type RowsMix,
  type Stopped,
} from '../../cpu/index.ts';
import { formatBytes, formatMs } from '../../tools/index.ts';
import { FunctionLog, logEvents, withFunctionLog } from './function-log.ts';
import { History } from '../history/index.ts';
import { evictionWords, type GpuEviction, type MakesRoom } from '../../live/index.ts';
import { Statistics } from './statistics.ts';
import type { Registry } from '../types.ts';
import { versionOf } from '../rollout/versions.ts';

/** Causes of an instance's end, as text for operators. */
const leavingWords = {
  idle: 'it had nothing to do for longer than the idle time',
  room: 'another function needed the place',
  unload: 'it was unloaded, replaced or removed',
  reconfigured: 'its pool was given another configuration',
} as const;

export class HostRecords {
  readonly history = new History();
  readonly statistics = new Statistics(this.history);
  readonly functionLog = new FunctionLog();
  /** Its records about a function also go to that function's log. */
  readonly logger: Logger;
  readonly #ownLogger: Logger;
  #registry: Registry | undefined;
  /** By the key of the function whose instance goes: who gets its memory. */
  readonly #roomFor = new Map<string, string>();

  constructor(logger: Logger) {
    this.#ownLogger = logger;
    this.logger = withFunctionLog(logger, this.functionLog);
    logEvents(this.history.eventLog, this.functionLog);
  }

  /** Records publications and removals, and forgets removed functions. */
  follow(registry: Registry): void {
    this.#registry = registry;
    const { history, functionLog } = this;
    registry.onChange(({ before, after }) => {
      if (after?.state.status === 'ready' && before?.state.status !== 'ready') {
        history.eventLog.add({ kind: 'published', functionName: after.name, version: after.version });
      }
      if (before === undefined || after !== undefined) return;
      this.#roomFor.delete(before.key);
      if (registry.versions(before.name).length === 0) {
        history.forget(before.name);
        functionLog.forget(before.name);
      }
      history.eventLog.add({ kind: 'removed', functionName: before.name, version: before.version });
    });
  }

  /** A line from a process of the pools; `key`: the function in it. */
  printed(pid: number | undefined, key: string | undefined, line: string): void {
    this.#ownLogger.info({ pid, function: key }, line);
    if (key !== undefined) this.functionLog.add(key, { source: 'handler', level: 'info', text: line });
  }

  loaded({ key, loadMs }: Loaded): void {
    this.#addOfInstance(key, `an instance loaded it in ${formatMs(loadMs)}`);
    const version = this.#versionOf(key);
    if (version !== undefined) this.statistics.loaded(this.statistics.of(version), loadMs, version.modelBytes);
  }

  waitedForDisk({ key, bytes, ms }: DiskWait): void {
    this.#addOfInstance(key, `an instance waited ${formatMs(ms)} for ${formatBytes(bytes)} from the disk`);
    const version = this.#versionOf(key);
    if (version === undefined) return;
    const { disk } = this.statistics.of(version);
    disk.bytes += bytes;
    disk.ms += ms;
    this.history.readDisk(version.name, { bytes, ms });
  }

  /** Told before {@link givenUp} says that an instance went for lack of room. */
  makesRoom({ key, by }: MakesRoom): void {
    this.#roomFor.set(key, by);
  }

  givenUp({ key, cause, ageMs, reason }: GivenUp): void {
    const by = cause === 'room' ? nameOf(this.#roomFor.get(key)) : undefined;
    this.#roomFor.delete(key);
    const words = cause === 'died' ? undefined : by === undefined ? leavingWords[cause] : `'${by}' needed the place`;
    if (words === undefined) this.logger.warn({ function: key, reason }, 'instance died');
    else {
      this.logger.debug({ function: key, cause, ageMs: Math.round(ageMs) }, 'instance given up');
      this.#addOfInstance(key, `an instance was given up after ${formatMs(ageMs)}: ${words}`);
    }
    const version = this.#versionOf(key);
    if (version === undefined) return;
    this.statistics.evicted(this.statistics.of(version), cause, ageMs);
    const { eventLog } = this.history;
    const functionName = version.name;
    if (words === undefined) {
      this.statistics.of(version).lastDeath = reason;
      eventLog.add({ kind: 'instance-died', functionName, reason });
    } else eventLog.add({ kind: 'eviction', functionName, cause: words, why: cause, by, ageMs, where: 'the CPU pool' });
  }

  stopped(key: string, stopped: Stopped): void {
    const reason = stoppedText(stopped, performance.now());
    this.logger.error({ function: key, reason }, 'the function is not run: it kills its processes');
    const version = this.#versionOf(key);
    if (version === undefined) return;
    this.history.eventLog.add({ kind: 'stopped', functionName: version.name, version: version.version, reason });
  }

  /** A comparison in service has found it; nobody got the wrong answer. */
  rowsMixed({ key, reason }: RowsMix): void {
    this.logger.error({ function: key, reason }, 'joined calls got other answers than alone; its calls run alone now');
  }

  evictedFromGpu({ key, gpu, bytes, cause, by, ageMs }: GpuEviction): void {
    const version = this.#versionOf(key);
    if (version === undefined) return;
    this.statistics.evicted(this.statistics.of(version), `gpu ${cause}`, ageMs);
    this.history.eventLog.add({
      kind: 'eviction',
      functionName: version.name,
      cause: `${evictionWords[cause]}${by === undefined ? '' : ` (${by})`}, ${Math.round(bytes / 1024)} KiB`,
      why: cause === 'capacity' ? 'room' : cause,
      by: nameOf(by),
      ageMs,
      where: `GPU ${gpu}`,
    });
  }

  reconfigured(change: Reconfigured): void {
    const { key, cause, state, kind, ms, to } = change;
    const functionName = this.#versionOf(key)?.name;
    if (functionName !== undefined && state === 'done' && kind !== 'none') {
      const configuration = to === undefined ? 'instances on demand' : groupsText(to.groups);
      this.history.eventLog.add({ kind: 'reconfiguration', functionName, configuration, cause, tookMs: ms });
    }
    const facts = { function: key, cause, kind, ms: Math.round(ms), configuration: to ?? 'on demand' };
    if (change.state === 'failed' || change.state === 'refused') {
      this.logger.warn({ ...facts, reason: change.reason }, `pool configuration ${state}`);
    } else if (kind !== 'none') {
      this.logger.info(facts, 'pool reconfigured');
    }
  }

  #addOfInstance(key: string, text: string): void {
    this.functionLog.add(key, { source: 'instance', level: 'info', text });
  }

  #versionOf(key: string): ReturnType<typeof versionOf> {
    return this.#registry && versionOf(this.#registry, key);
  }
}

const nameOf = (key: string | undefined): string | undefined => key?.slice(0, key.lastIndexOf('@'));
