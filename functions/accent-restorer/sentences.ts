/** Counts the words of sentences that lost their accents and were given them back. */

export interface SentenceCounts {
  readonly words: number;
  /** Words that are as they were. */
  readonly right: number;
  /** Words that have no accent to lose: what leaving the text alone would get right. */
  readonly unchanged: number;
  readonly wrong: readonly { readonly wanted: string; readonly given: string }[];
}

export function withoutAccents(text: string): string {
  const ligatures: Readonly<Record<string, string>> = { œ: 'oe', Œ: 'OE', æ: 'ae', Æ: 'AE' };
  return text
    .normalize('NFD')
    .replaceAll(/\p{M}/gu, '')
    .replaceAll(/[œŒæÆ]/g, (ligature) => ligatures[ligature] ?? ligature);
}

export async function countSentences(
  sentences: readonly string[],
  restore: (text: string) => Promise<string>,
): Promise<SentenceCounts> {
  let words = 0;
  let right = 0;
  let unchanged = 0;
  const wrong: { wanted: string; given: string }[] = [];
  for (const wanted of sentences) {
    const given = await restore(withoutAccents(wanted));
    if (given !== wanted) wrong.push({ wanted, given });
    const givenWords = wordsOf(given);
    for (const [index, word] of wordsOf(wanted).entries()) {
      words++;
      if (givenWords[index] === word) right++;
      if (withoutAccents(word) === word) unchanged++;
    }
  }
  return { words, right, unchanged, wrong };
}

function wordsOf(sentence: string): string[] {
  return sentence.match(/\p{L}+/gu) ?? [];
}
