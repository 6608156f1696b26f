/** Helpers to find versions of functions and read their properties. */
import { batchDimension } from '../cpu/index.ts';
import type { OutOfService } from './out-of-service.ts';
import type { FunctionVersion, Registry } from './types.ts';

/** @param key `name@version` */
export function versionOf(registry: Pick<Registry, 'find'>, key: string): FunctionVersion | undefined {
  const at = key.lastIndexOf('@');
  return registry.find(key.slice(0, at), key.slice(at + 1));
}

export function allVersions(registry: Pick<Registry, 'names' | 'versions'>): FunctionVersion[] {
  return registry.names().flatMap((name) => registry.versions(name));
}

/** The state of a version for operators: one that is stopped, because it kills its processes, is unavailable. */
export function stateShown(
  version: FunctionVersion,
  outOfService: Pick<OutOfService, 'stopped'>,
): FunctionVersion['state'] {
  const reason = outOfService.stopped(version);
  return reason === undefined ? version.state : { status: 'unavailable', reason };
}

/**
 * Most rows of a run shared by calls: `batching.max`, by which the operator declares that rows are independent of each
 * other. 1 if the inputs have no open first dimension in common: a model with a fixed first dimension says itself how
 * large its batch is.
 */
export const rowsJoinedMax = ({ settings, metadata }: FunctionVersion): number =>
  batchDimension(metadata?.inputs ?? []).kind === 'open' ? settings.batching.batchMax : 1;
