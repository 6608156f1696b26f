/**
 * Judges a version that has just been given traffic by its answers beside those of the version that served before.
 * Pure: no clock, no drawing of lots.
 */

/** How many of a version's calls were answered within the SLO. Calls that were shed for want of room do not count. */
export interface Answers {
  good: number;
  /** Answered, but late. */
  late: number;
  failed: number;
}

export const noAnswers = (): Answers => ({ good: 0, late: 0, failed: 0 });

export type TrialVerdict =
  { readonly kind: 'undecided' } | { readonly kind: 'passed' } | { readonly kind: 'failed'; readonly reason: string };

/** Fewer answers say nothing. */
const answersMin = 20;
/** A version that has not failed after these has passed. */
export const trialAnswersMax = 500;
/** Its share of bad answers has to be higher by at least this, */
const excessMin = 0.1;
/** and by so many standard deviations: one of 700 trials would reach 3 by chance at a single look. */
const deviationsMin = 3;
/** Where the version before was hardly called, only failures count, and at least this share. */
const failedShareMin = 0.5;

const countOf = ({ good, late, failed }: Answers): number => good + late + failed;
const badShare = (answers: Answers): number => (answers.late + answers.failed) / Math.max(1, countOf(answers));

/**
 * @param before of the version that served before: its latest ones at the time of the change, and those since
 * @param after of the new version since the change
 */
export function verdictOf(before: Answers, after: Answers): TrialVerdict {
  const count = countOf(after);
  if (count < answersMin) return { kind: 'undecided' };
  if (countOf(before) < answersMin) {
    if (after.failed / count >= failedShareMin) {
      return { kind: 'failed', reason: `${after.failed} of its first ${count} calls failed` };
    }
  } else if (isWorse(before, after)) {
    const text = `${percent(1 - badShare(after))} of its ${count} calls were answered within the SLO`;
    return { kind: 'failed', reason: `${text}, ${percent(1 - badShare(before))} before (${after.failed} failed)` };
  }
  return count >= trialAnswersMax ? { kind: 'passed' } : { kind: 'undecided' };
}

/** A test of two proportions with the pooled deviation. */
function isWorse(before: Answers, after: Answers): boolean {
  const [n, m] = [countOf(before), countOf(after)];
  const excess = badShare(after) - badShare(before);
  const pooled = (badShare(before) * n + badShare(after) * m) / (n + m);
  const deviation = Math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m));
  return excess >= excessMin && excess >= deviationsMin * deviation;
}

const percent = (share: number): string => `${Math.round(share * 1000) / 10}%`;

/** The latest answers of a version: enough to compare with, old ones forgotten. */
export class LatestAnswers {
  readonly #kept: (keyof Answers)[] = [];
  readonly #counts = noAnswers();
  #next = 0;

  add(answer: keyof Answers, keep = 200): void {
    const old = this.#kept[this.#next];
    if (old !== undefined) this.#counts[old]--;
    this.#kept[this.#next] = answer;
    this.#counts[answer]++;
    this.#next = (this.#next + 1) % keep;
  }

  counts(): Answers {
    return { ...this.#counts };
  }
}
