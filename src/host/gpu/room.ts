import type { ShellFunction } from './shell-state.ts';

/** Functions that a GPU could do without as far as the shell knows, those used longest ago first; pinned ones stay. */
export function idleLongestFirst(
  functions: Iterable<ShellFunction>,
  isIdleThere: (functionIndex: number) => boolean,
  asking?: ShellFunction,
): ShellFunction[] {
  return [...functions]
    .filter((fn) => fn !== asking && fn.withdrawal === undefined && !fn.sheet.pinned && isIdleThere(fn.index))
    .toSorted((one, other) => one.lastUseMs - other.lastUseMs);
}
