/** Variants are planned in a separate thread: a large graph takes up to a second, in which the host has to answer. */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { ChrionPlan } from '../../../plan/index.ts';
import { callOnce, compiledModule } from '../../../process/index.ts';
import type { GraphProfile } from '../../../profile/index.ts';
import { getOrStart } from '../../../tools/index.ts';
import type { VariantApi, VariantQuestion } from './variant-thread.ts';

const remote = {
  what: 'the planner of variants',
  thread: {
    module: compiledModule('./variant-thread.js', import.meta.url),
    name: 'variants planner',
    ends: 'at-once',
  },
} as const;

/** Plans that are cached: functions of one structure have the same. */
const variantListsKept = 32;

export class VariantPlanner {
  readonly #variants = new LRUCache<string, Promise<readonly ChrionPlan[]>>({ max: variantListsKept });

  /** As planVariants. @throws what planVariants throws, as an Error with its message */
  plan(profile: GraphProfile, options: VariantQuestion['options']): Promise<readonly ChrionPlan[]> {
    const question: VariantQuestion = { profile, options };
    const key = createHash('sha256').update(JSON.stringify(question)).digest('hex');
    return getOrStart(this.#variants, key, () => callOnce<VariantApi, 'plan'>(remote, 'plan', question));
  }
}
