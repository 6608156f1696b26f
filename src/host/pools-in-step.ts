/** The functions of the registry as the CPU pools know them, and what the pools offer to the scheduler for them. */
import type { Logger } from 'pino';
import {
  batchDimension,
  heldUpMs,
  type ArrivalPrediction,
  type CpuPools,
  type PoolFacts,
  type PoolLimits,
} from '../cpu/index.ts';
import type { CpuOffer, CpuPlace } from '../schedule/index.ts';
import { rowsJoinedMax } from './batching.ts';
import type { HostConfig } from './config.ts';
import type { FunctionVersion, Registry } from './types.ts';

/**
 * Makes each ready version known to the pools, and only those; a changed model or handler gets instances of its own.
 */
export function keepPoolsInStep(registry: Registry, pools: CpuPools, config: HostConfig, logger: Logger): void {
  const known = new Map<string, FunctionVersion>();
  const forget = (key: string): void => {
    if (!known.delete(key)) return;
    pools.unregister(key).catch((error: unknown) => {
      logger.error({ err: error, function: key }, 'the pool could not be ended');
    });
  };
  registry.onChange(({ before, after }) => {
    const name = after?.name ?? before?.name;
    if (name === undefined) return;
    if (before !== undefined && after === undefined) forget(before.key);
    const current = registry.find(name);
    for (const version of registry.versions(name)) {
      const last = known.get(version.key);
      if (version.state.status !== 'ready' || (last !== undefined && !sameInstances(last, version))) {
        forget(version.key);
      }
      if (version.state.status !== 'ready') continue;
      known.set(version.key, version);
      const { key, modelPath, handlerPath, metadata } = version;
      pools.register(
        {
          key,
          modelPath,
          threads: threadsOf(version, config),
          modelBytes: version.modelBytes,
          isolation: version.settings.isolation,
          modelIdentity: [version.modelSha256, version.externalDataStamp ?? ''].join(' '),
          ...(metadata === undefined ? {} : { inputNames: metadata.inputs.map(({ name }) => name) }),
          ...(handlerPath === undefined ? {} : { handlerPath }),
        },
        limitsOf(version, version.key === current?.key, config),
      );
    }
  });
}

/** A little more than an answer takes to go out and the next call to come in. */
const handedAheadMs = 2;

/** Cores that no function has leased, and the memory of all. */
export function cpuPlaceOf(pools: CpuPools): CpuPlace {
  const { coresShared, memoryBytes } = pools.resources();
  return { cores: coresShared, memoryBytes, aheadMs: handedAheadMs, holdMsMax: heldUpMs };
}

/** What the CPU pool of a version offers to the scheduler; what was not measured is left open, and learnt. */
export function cpuOfferOf(
  key: string,
  registry: Registry,
  config: HostConfig,
  predictCpu: (key: string) => ArrivalPrediction | undefined,
  facts: PoolFacts | undefined,
): CpuOffer | null {
  const version = versionOf(registry, key);
  if (version === undefined) return null;
  const predicted = predictCpu(key);
  // Up to so many share a run.
  const rows = limitsOf(version, true, config).batchMax;
  const cores = (predicted?.cores ?? threadsOf(version, config)) / rows;
  const bytes = facts?.sessionBytes ?? version.modelBytes;
  const { loadMs, slots = 0 } = facts ?? {};
  return { latencyMs: predicted?.serviceMs, cores, loadMs, bytes, slots };
}

function sameInstances(one: FunctionVersion, other: FunctionVersion): boolean {
  return (
    one.modelSha256 === other.modelSha256 &&
    one.externalDataStamp === other.externalDataStamp &&
    one.modelPath === other.modelPath &&
    one.handlerPath === other.handlerPath &&
    one.settings.cpu.threads === other.settings.cpu.threads &&
    one.settings.isolation === other.settings.isolation
  );
}

export function threadsOf(version: FunctionVersion, config: HostConfig): number {
  return Math.min(version.settings.cpu.threads ?? config.cpu.threads, config.cpu.cores);
}

function limitsOf(version: FunctionVersion, isCurrent: boolean, config: HostConfig): PoolLimits {
  const { settings, metadata } = version;
  // Where the inputs have no first dimension in common, each request is one row.
  const dimension = batchDimension(metadata?.inputs ?? []);
  const isOpen = dimension.kind === 'open';
  return {
    // A pin keeps the version that serves; the ones it has replaced give their instances back.
    instancesMin: settings.pinned && isCurrent ? 1 : 0,
    instancesMax: settings.cpu.instancesMax ?? Math.max(1, Math.floor(config.cpu.cores / threadsOf(version, config))),
    queueMax: config.cpu.queueMax,
    batchMax: rowsJoinedMax(version),
    ...(isOpen ? undefined : { batchFixed: dimension.kind === 'fixed' ? dimension.rows : 1 }),
    batchDelayMs: settings.batching.delayMs,
    idleMs: config.cpu.idleMs,
    handlerTimeoutMs: settings.timeouts.handlerMs,
    loadTimeoutMs: settings.timeouts.loadMs,
    inferTimeoutMs: settings.timeouts.inferMs,
  };
}

/** Most rows of one run: of a model whose batch is fixed those that it has. */
export function rowsMaxOf(version: FunctionVersion, config: HostConfig): number {
  const { batchMax, batchFixed } = limitsOf(version, true, config);
  return batchFixed ?? batchMax;
}

export function versionOf(registry: Registry, key: string): FunctionVersion | undefined {
  const at = key.lastIndexOf('@');
  return registry.find(key.slice(0, at), key.slice(at + 1));
}
