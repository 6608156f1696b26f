/**
 * What the network is measured against: the mark that was most frequent for a letter between the same neighbours, three
 * on each side, or two or one where those were never seen.
 */
import { marks } from './accents.ts';
import type { Sample } from './corpus.ts';

const widths = [3, 2, 1, 0] as const;

export class NeighbourBaseline {
  readonly #counts = new Map<string, Int32Array>();

  learn({ letters, context, targets }: Sample): void {
    for (const [at, target] of targets.entries()) {
      for (const width of widths) {
        const key = keyOf(letters, context, at, width);
        let counts = this.#counts.get(key);
        if (counts === undefined) this.#counts.set(key, (counts = new Int32Array(marks.length)));
        counts[target] = (counts[target] ?? 0) + 1;
      }
    }
  }

  /** Mark of each letter. */
  predict({ letters, context }: Sample): number[] {
    return Array.from(letters, (_, at) => {
      for (const width of widths) {
        const counts = this.#counts.get(keyOf(letters, context, at, width));
        if (counts !== undefined) return counts.indexOf(Math.max(...counts));
      }
      return 0;
    });
  }
}

function keyOf(letters: string, context: string, at: number, width: number): string {
  const padded = `${context[0]}<<${letters}>>`;
  return `${context === 'auxiliary'}${padded.slice(Math.max(1, at + 3 - width), at + 3)}|${padded.slice(at + 3, at + 4 + width)}`;
}
