/** How long joined runs of a function took on these GPUs, on disk: after a restart its calls are joined at once. */
import { shapesKey, type InputShapes } from '../../gpu/index.ts';
import type { BatchShare } from '../../schedule/index.ts';
import type { FunctionPlans, JoinedSizes } from '../../live/index.ts';
import type { FunctionVersion } from '../types.ts';
import { ModelNotes } from './model-notes.ts';

/** What was timed. */
export interface Timed {
  /** Of a single run. */
  readonly shapes: InputShapes;
  /** In rows, the single run first. */
  readonly sizes: readonly number[];
  /** Runs of other plans take other times. */
  readonly plans: FunctionPlans | undefined;
}

export class BatchTimes {
  readonly #notes: ModelNotes;

  /** As {@link ModelNotes}. */
  constructor(folder: string, engine: string) {
    this.#notes = new ModelNotes(folder, engine);
  }

  /** Undefined where nothing was kept, or it makes no sense: it is timed again. */
  find(version: FunctionVersion, timed: Timed): Promise<JoinedSizes | undefined> {
    return this.#notes.find(version, aboutOf(timed), (stored: Partial<JoinedSizes>) => {
      const shares = (stored.shares ?? []).filter(isShare);
      const isWhole = timed.sizes.slice(1).every((rows, index) => shares[index]?.rows === rows);
      return isWhole && shares.length === timed.sizes.length - 1 ? { variant: stored.variant, shares } : undefined;
    });
  }

  keep(version: FunctionVersion, timed: Timed, found: JoinedSizes): Promise<void> {
    return this.#notes.keep(version, aboutOf(timed), found);
  }
}

const aboutOf = ({ shapes, sizes, plans }: Timed): readonly unknown[] => {
  const offers = plans?.offers.map(({ plan, prefixBytes }) => [plan, prefixBytes]);
  return [shapesKey(shapes), sizes, offers];
};

const isShare = ({ rows, share }: Partial<BatchShare>): boolean =>
  Number.isInteger(rows) && Number.isFinite(share) && share! > 0;
