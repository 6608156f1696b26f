/** Keeps the CPU pools' functions in step with the registry. */
import type { Logger } from 'pino';
import { tooLargeText, type CpuPools, type PoolLimits } from '../../cpu/index.ts';
import { declaredRows } from '../../rows/index.ts';
import type { HostConfig } from '../config/config.ts';
import { given } from '../../tools/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { rowsJoinedMax } from '../rollout/versions.ts';

/** Registers each ready version with the pools, and only those; a changed model or handler gets new instances. */
export function keepPoolsInStep(registry: Registry, pools: CpuPools, config: HostConfig, logger: Logger): void {
  const known = new Map<string, { readonly version: FunctionVersion; readonly isCurrent: boolean }>();
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
      const isCurrent = version.key === current?.key;
      const before = known.get(version.key);
      // One of many versions has changed, and another one may be current.
      if (before?.version === version && before.isCurrent === isCurrent) continue;
      const last = before?.version;
      if (version.state.status !== 'ready' || (last !== undefined && !sameInstances(last, version))) {
        forget(version.key);
      }
      if (version.state.status !== 'ready') continue;
      const { key, modelPath, handlerPath, metadata, modelBytes } = version;
      const { memoryBytes } = config.cpu;
      // Each call says so too, but the first may come long after the publication.
      if (!known.has(key) && modelBytes > memoryBytes) {
        logger.warn({ function: key }, `the CPU cannot run it: ${tooLargeText(key, modelBytes, memoryBytes)}`);
      }
      known.set(key, { version, isCurrent });
      pools.register(
        {
          key,
          modelPath,
          threads: threadsOf(version, config),
          modelBytes,
          isolation: version.settings.isolation,
          modelIdentity: identityOf(version),
          ...(metadata === undefined ? {} : { inputNames: metadata.inputs.map(({ name }) => name) }),
          ...given({ opening: metadata?.opening, runBytes: metadata?.runBytes }),
          ...(handlerPath === undefined ? {} : { handlerPath }),
        },
        limitsOf(version, isCurrent, config),
      );
    }
  });
}

/** A prepared model is one of the served form. */
function identityOf({ modelSha256, externalDataStamp = '', metadata }: FunctionVersion): string {
  return `${modelSha256} ${externalDataStamp}${metadata?.opening?.isMended === true ? ' mended' : ''}`;
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

export function threadsOf({ settings }: FunctionVersion, { cpu }: Pick<HostConfig, 'cpu'>): number {
  return Math.min(settings.cpu.threads ?? cpu.threads, cpu.cores);
}

export function instancesMaxOf(version: FunctionVersion, config: Pick<HostConfig, 'cpu'>): number {
  return version.settings.cpu.instancesMax ?? Math.max(1, Math.floor(config.cpu.cores / threadsOf(version, config)));
}

function limitsOf(version: FunctionVersion, isCurrent: boolean, config: HostConfig): PoolLimits {
  const { settings, metadata } = version;
  // If the inputs have no first dimension in common, each request is one row.
  const dimension = declaredRows(metadata ?? { inputs: [] });
  const isOpen = dimension.kind === 'open';
  return {
    // A pin keeps the serving version; instances of replaced versions are released.
    instancesMin: settings.pinned && isCurrent ? 1 : 0,
    instancesMax: instancesMaxOf(version, config),
    batchMax: rowsJoinedMax(version),
    ...(isOpen ? undefined : { batchFixed: dimension.kind === 'fixed' ? dimension.rows : 1 }),
    batchDelayMs: settings.batching.delayMs,
    idleMs: config.cpu.idleMs,
    handlerTimeoutMs: settings.timeouts.handlerMs,
    loadTimeoutMs: settings.timeouts.loadMs,
    inferTimeoutMs: settings.timeouts.inferMs,
  };
}

/** Most rows of one run; with a fixed batch exactly its rows. */
export function rowsMaxOf(version: FunctionVersion, config: HostConfig): number {
  const { batchMax, batchFixed } = limitsOf(version, true, config);
  return batchFixed ?? batchMax;
}
