import type { LayerMethod } from '../../src/plan/index.ts';
import type { LayerProfile } from '../../src/profile/index.ts';

/**
 * How many layers with weights were decided as in a published plan, given as one letter for each layer: O loaded, X
 * from host memory, - without weights. The published lists have embeddings in PyTorch's module order (words, positions,
 * token types); a graph has them in execution order (words, token types, positions).
 */
export function agreement(
  { layers }: LayerProfile,
  methods: readonly LayerMethod[],
  published: string,
): { right: number; count: number; wrong: string[] } {
  const order = [...layers.keys()];
  if (layers[1]?.name.includes('token_type') === true) [order[1], order[2]] = [2, 1];
  if (published.length !== layers.length) throw new Error(`${layers.length} layers, but ${published.length} letters`);
  let right = 0;
  let count = 0;
  const wrong: string[] = [];
  for (const [place, letter] of Array.from(published).entries()) {
    const index = order[place]!;
    if ((letter === '-') !== (layers[index]!.bytes === 0))
      throw new Error(`layer ${place} has weights on one side only`);
    if (letter === '-') continue;
    count++;
    if ((methods[index] === 'load' ? 'O' : 'X') === letter) right++;
    else wrong.push(layers[index]!.name);
  }
  return { right, count, wrong };
}
