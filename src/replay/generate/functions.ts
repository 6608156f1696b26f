/** The functions of a trace, as instances of a few models. */
import { shuffledIndices, Xoshiro } from './random.ts';

/** So many functions of one model, each with its own weights. */
export interface FunctionGroup {
  readonly model: string;
  readonly count: number;
}

/** BERT-Base : RoBERTa-Base : GPT-2 at 4 : 4 : 1 (DeepPlan, section 5.3.2), `count` functions in all. */
export function paperMix(count: number): FunctionGroup[] {
  const gpt2 = Math.round(count / 9);
  const bert = Math.round((count - gpt2) / 2);
  return [
    { model: 'bert-base', count: bert },
    { model: 'roberta-base', count: count - gpt2 - bert },
    { model: 'gpt2', count: gpt2 },
  ].filter((group) => group.count > 0);
}

/**
 * How models are placed on the function positions 0, 1, ..., which traces sort by popularity. `mixed`: each position
 * goes to the model that is furthest behind its share, so that every model has popular functions. `blocks`: model after
 * model in the given order, as in the DeepPlan artifact. `shuffled`: by the seed.
 */
export type FunctionOrder = 'mixed' | 'blocks' | 'shuffled';

export const functionOrders: readonly FunctionOrder[] = ['mixed', 'blocks', 'shuffled'];

/** Position of each function's group. */
export function orderGroups(groups: readonly FunctionGroup[], order: FunctionOrder, seed = 0): number[] {
  const blocks = groups.flatMap(({ count }, group) => Array<number>(count).fill(group));
  if (order === 'blocks') return blocks;
  if (order === 'shuffled') {
    return Array.from(shuffledIndices(blocks.length, new Xoshiro(seed)), (from) => blocks[from]!);
  }
  const given = groups.map(() => 0);
  return blocks.map((_, position) => {
    let chosen = -1;
    let behindMost = -Infinity;
    for (const [group, { count }] of groups.entries()) {
      const used = given[group]!;
      if (used === count) continue;
      const behind = (count / blocks.length) * (position + 1) - used;
      // Rounding must not decide between models with the same share.
      if (behind > behindMost + 1e-9) [chosen, behindMost] = [group, behind];
    }
    given[chosen]!++;
    return chosen;
  });
}

/** A name for each function: `bert-base/7` is the eighth of its model. */
export function instanceNames(groups: readonly FunctionGroup[], order: readonly number[]): string[] {
  const given = groups.map(() => 0);
  return order.map((group) => `${groups[group]!.model}/${given[group]!++}`);
}
