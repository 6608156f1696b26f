/** The head of the overview: what is wrong, and the one thing to do about it. */
import type { MissCauses, TroubleAnswer } from '../../api-types.ts';
import { formatShare } from './format.ts';

type Cause = keyof MissCauses;

/** A label for the share of missed calls, and advice. */
const causes: Readonly<Record<Cause, { readonly label: string; readonly advice: string }>> = {
  queue: {
    label: 'waited for a turn',
    advice: 'More calls come than cores and GPUs carry: add workers, or set admission to shed.',
  },
  load: {
    label: 'waited for the model',
    advice: 'Its model is loaded again and again: pin the function, or give models more memory.',
  },
  handler: {
    label: 'in the handler',
    advice: 'Its handler takes most of the time: look at what it does before and after the model.',
  },
  model: {
    label: 'in the model',
    advice: 'A run of the model alone takes too long: raise the SLO, or use a smaller model or a GPU.',
  },
  host: { label: 'in the host', advice: 'Reading and writing its bodies takes most of the time: send binary tensors.' },
  shed: {
    label: 'shed',
    advice: 'Calls are turned away that could not be answered in time: add cores, GPUs or workers.',
  },
  failed: { label: 'failed', advice: 'Its calls fail: the errors stand on its page.' },
};

export interface CauseShare {
  readonly cause: Cause;
  readonly share: number;
  readonly label: string;
}

/** Shares of all missed calls, the largest first; causes without calls are left out. */
export function causeShares(counts: MissCauses): CauseShare[] {
  const missed = Object.values(counts).reduce((sum, count) => sum + count, 0);
  return (Object.keys(causes) as Cause[])
    .filter((cause) => counts[cause] > 0)
    .map((cause) => ({ cause, share: counts[cause] / missed, label: causes[cause].label }))
    .toSorted((one, other) => other.share - one.share);
}

/** 'waited for a turn 62.0%, failed 38.0%' */
export const causesText = (counts: MissCauses): string =>
  causeShares(counts)
    .map(({ label, share }) => `${label} ${formatShare(share)}`)
    .join(', ');

/** Advice for the largest cause. */
export function adviceFor(counts: MissCauses): string {
  const [largest] = causeShares(counts);
  return largest === undefined ? '' : causes[largest.cause].advice;
}

/** '3 of 120 functions miss their SLO' */
export function headline({ functions, called, missing }: TroubleAnswer): string {
  const all = `${functions} function${functions === 1 ? '' : 's'}`;
  if (missing > 0) return `${missing} of ${all} ${missing === 1 ? 'misses its' : 'miss their'} SLO`;
  if (called === 0) return `None of ${all} was called`;
  return `No function misses its SLO: ${called} of ${functions} ${called === 1 ? 'was' : 'were'} called`;
}

/** Calls that count as no function's miss, such as those with 400; undefined if there were none. */
export function refusedText({ calls, functions }: TroubleAnswer['refused']): string | undefined {
  if (calls === 0) return undefined;
  const were = calls === 1 ? '1 call was' : `${calls.toLocaleString('en')} calls were`;
  const where = functions === 1 ? 'at' : `at ${functions} functions, most at`;
  return `${were} refused for the caller’s own mistake, or left by the caller: ${where}`;
}
