/** How long joined runs of a function took on these GPUs, on disk: after a restart its calls are joined at once. */
import { mkdir, readFile } from 'node:fs/promises';
import { shapesKey, type InputShapes } from '../../gpu/index.ts';
import type { BatchShare } from '../../schedule/index.ts';
import type { FunctionPlans, JoinedSizes } from '../live/index.ts';
import type { FunctionVersion } from '../types.ts';
import { writeWhole } from './plans.ts';
import { keptPath } from './verdicts.ts';

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
  readonly #folder: string;
  readonly #engine: string;

  /** @param engine names the GPUs, the driver, the compiler and the engine */
  constructor(folder: string, engine: string) {
    this.#folder = folder;
    this.#engine = engine;
  }

  /** Undefined where nothing was kept, or it makes no sense: it is timed again. */
  async find(version: FunctionVersion, timed: Timed): Promise<JoinedSizes | undefined> {
    try {
      const kept = JSON.parse(await readFile(this.#path(version, timed), 'utf8')) as Partial<JoinedSizes>;
      const shares = (kept.shares ?? []).filter(isShare);
      const isWhole = timed.sizes.slice(1).every((rows, index) => shares[index]?.rows === rows);
      return isWhole && shares.length === timed.sizes.length - 1 ? { variant: kept.variant, shares } : undefined;
    } catch {
      return undefined;
    }
  }

  async keep(version: FunctionVersion, timed: Timed, found: JoinedSizes): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    await writeWhole(this.#path(version, timed), { ...found, firstFor: version.key, engine: this.#engine });
  }

  #path(version: FunctionVersion, { shapes, sizes, plans }: Timed): string {
    const offers = plans?.offers.map(({ plan, prefixBytes }) => [plan, prefixBytes]);
    return keptPath(this.#folder, this.#engine, version, [shapesKey(shapes), sizes, offers]);
  }
}

const isShare = ({ rows, share }: Partial<BatchShare>): boolean =>
  Number.isInteger(rows) && Number.isFinite(share) && share! > 0;
