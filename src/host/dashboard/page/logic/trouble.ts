/** The head of the overview: what is wrong, since when, and what to do about it. */
import type { MissedBy, TroubleAnswer, TroubleRow } from '../../api-types.ts';
import { formatMs, formatShare } from './format.ts';

/** The share of each cause in all missed calls. */
export function causeShares(causes: readonly MissedBy[]): readonly (MissedBy & { readonly share: number })[] {
  const missed = causes.reduce((sum, { calls }) => sum + calls, 0);
  return causes.map((each) => ({ ...each, share: each.calls / missed }));
}

/** 'waited for a turn 62.0%, failed 38.0%' */
export const causesText = (causes: readonly MissedBy[]): string =>
  causeShares(causes)
    .map(({ words, share }) => `${words} ${formatShare(share)}`)
    .join(', ');

/** Facts and advice as their parts, and what all rows have of them: it is said once. */
export function saidOnce(rows: readonly Pick<TroubleRow, 'facts' | 'advice'>[]) {
  const parts = rows.map(({ facts, advice }) => [...facts.split('; '), ...(advice ?? '').split(/(?<=\.) (?=[A-Z])/)]);
  const all = rows.length < 2 ? [] : parts[0]!.filter((part) => part !== '' && parts.every((of) => of.includes(part)));
  const own = (texts: readonly string[]): string[] => texts.filter((text) => text !== '' && !all.includes(text));
  return {
    all: sentences(all),
    rows: parts.map((texts) => sentences(own(texts))),
  };
}

/** Facts have no full stop of their own, advice has. */
const sentences = (parts: readonly string[]): string => {
  const facts = parts.filter((part) => !part.endsWith('.'));
  return [...(facts.length === 0 ? [] : [`${facts.join('; ')}.`]), ...parts.filter((part) => part.endsWith('.'))].join(
    ' ',
  );
};

/** '3 of 120 functions miss their SLO; 12 calls are overdue, the oldest by now 24 s old' */
export function headline({ functions, called, missing, overdue, few }: TroubleAnswer): string {
  const all = `${functions} function${functions === 1 ? '' : 's'}`;
  const open = missing === 0 ? '' : overdueText(overdue);
  if (missing > 0) return `${missing} of ${all} ${missing === 1 ? 'misses its' : 'miss their'} SLO${open}`;
  if (called === 0) return `None of ${all} was called`;
  const late = few === 0 ? '' : `; ${few} ${few === 1 ? 'call' : 'calls'} missed it, too few to judge`;
  return `No function misses its SLO: ${called} of ${functions} ${called === 1 ? 'was' : 'were'} called${late}`;
}

function overdueText({ calls, oldestMs }: TroubleRow['overdue']): string {
  if (calls === 0) return '';
  return `; ${calls.toLocaleString('en')} ${calls === 1 ? 'call is' : 'calls are'} overdue, the oldest ${formatMs(oldestMs)} old`;
}

/** Misses that ended within this time go on. */
const recentMs = 60_000;

/** 'since 12:03:10, and still' or 'from 12:03:10 to 12:04:00'; the instants as `clock` writes them. */
export function spanText(
  { sinceMs, lastMs, overdue }: Pick<TroubleRow, 'sinceMs' | 'lastMs' | 'overdue'>,
  nowMs: number,
  clock: (atMs: number) => string,
): string {
  const goesOn = overdue.calls > 0 || (lastMs !== null && nowMs - lastMs < recentMs);
  const since = sinceMs ?? nowMs - overdue.oldestMs;
  return goesOn ? `since ${clock(since)}, and still` : `from ${clock(since)} to ${clock(lastMs ?? nowMs)}`;
}

/** Calls that count as no function's miss, such as those with 400; undefined if there were none. */
export function refusedText({ calls, functions }: TroubleAnswer['refused']): string | undefined {
  if (calls === 0) return undefined;
  const were = calls === 1 ? '1 call was' : `${calls.toLocaleString('en')} calls were`;
  const where = functions === 1 ? 'at' : `at ${functions} functions, most at`;
  return `${were} refused with a status of 400 to 499, or left by the caller within its SLO: ${where}`;
}
