/** Helpers to find versions of functions and read their properties. */
import type { OutOfService } from '../calls/out-of-service.ts';
import type { FunctionVersion, Registry } from '../types.ts';

/** @param key `name@version` */
export function versionOf(registry: Pick<Registry, 'find'>, key: string): FunctionVersion | undefined {
  const at = key.lastIndexOf('@');
  return registry.find(key.slice(0, at), key.slice(at + 1));
}

export function allVersions(registry: Pick<Registry, 'names' | 'versions'>): FunctionVersion[] {
  return registry.names().flatMap((name) => registry.versions(name));
}

/** Most rows of a run shared by calls: `batching.max` where the rows are known to be independent of each other. */
export const rowsJoinedMax = ({ settings, rows }: Pick<FunctionVersion, 'settings' | 'rows'>): number =>
  rows?.kind === 'independent' ? settings.batching.batchMax : 1;

/** Whether the version's calls share runs, and why not; undefined if it does not want to join any. */
export function rowsView({ rows }: FunctionVersion): { readonly state: string; readonly why: string } | undefined {
  if (rows === undefined) return undefined;
  switch (rows.kind) {
    case 'independent': {
      const shown = { graph: 'the graph and runs of the model', runs: 'runs of the model', owner: 'its owner' }[
        rows.by
      ];
      return {
        state: 'independent',
        why: `${shown} ${rows.by === 'owner' ? 'vouches' : 'show'} that no row depends on others`,
      };
    }
    case 'checking':
      return { state: 'checking', why: 'its rows are being checked; calls run alone meanwhile' };
    case 'waiting':
      return { state: 'waiting', why: `the inputs of a call decide; calls run alone until then: ${rows.reason}` };
    case 'alone':
      return { state: 'alone', why: rows.reason };
  }
}

/** The state of a version for operators: one that is stopped, because it kills its processes, is unavailable. */
export function stateShown(
  version: FunctionVersion,
  outOfService: Pick<OutOfService, 'stopped'>,
): FunctionVersion['state'] {
  const reason = outOfService.stopped(version);
  return reason === undefined ? version.state : { status: 'unavailable', reason };
}
