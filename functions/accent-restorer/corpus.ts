/** What the model is trained on: the words of a French list, each with a context that decides between its spellings. */
import type { SeededRandom } from '../_training/random.ts';
import { readWordList, type WordList } from '../_training/word-list.ts';
import { commonWords } from '../language-id/common-words.ts';
import { contexts, lettersMax, marks, plainWord, type Context } from './accents.ts';
import { everydayVerbs, everydayWords } from './everyday-words.ts';

export const wordList: WordList = { file: 'french', package: 'wfrench' };

/** A word to train or test on. */
export interface Sample {
  readonly letters: string;
  readonly context: Context;
  /** Index in {@link marks}, one for each letter. */
  readonly targets: readonly number[];
}

/** Short words whose spelling the context decides; '*' stands for all other contexts. */
const byContext: Readonly<Record<string, Readonly<Partial<Record<Context | '*', string>>>>> = {
  a: { clitic: 'a', '*': 'à' },
  ou: { start: 'où', determiner: 'où', '*': 'ou' },
  la: { hyphen: 'là', '*': 'la' },
  du: { auxiliary: 'dû', '*': 'du' },
  des: { '*': 'des' },
  sur: { '*': 'sur' },
  ca: { '*': 'ça' },
};

const participle = /(?:é|ée|és|ées)$/;

/** All spellings of the same letters, and which of them each context wants. */
class Spellings {
  readonly letters: string;
  readonly #words: string[] = [];

  constructor(letters: string) {
    this.letters = letters;
  }

  add(word: string): void {
    if (!this.#words.includes(word)) this.#words.push(word);
  }

  /** Whether it can be read both as a participle and as another form. */
  get isParticipleOrNot(): boolean {
    return this.#words.some((word) => participle.test(word)) && !this.#words.every((word) => participle.test(word));
  }

  /** `j'ai mangé`, but `je mange`; otherwise an everyday word, or else the spelling with the fewest accents. */
  chosen(context: Context, preferred: ReadonlySet<string>): string {
    const decided = byContext[this.letters];
    if (decided !== undefined) return decided[context] ?? decided['*'] ?? this.letters;
    const fitting = this.#words.filter((word) => participle.test(word) === (context === 'auxiliary'));
    const known = this.#words.filter((word) => preferred.has(word));
    const knownFitting = fitting.filter((word) => preferred.has(word));
    const candidates = [knownFitting, known, fitting].find((words) => words.length > 0) ?? this.#words;
    const [first = this.letters, ...others] = candidates;
    return others.reduce((best, word) => (accentCount(word) < accentCount(best) ? word : best), first);
  }
}

const accentCount = (word: string): number => plainWord(word)?.marks.filter((mark) => mark !== 'none').length ?? 0;

/** How often the parts of the vocabulary are drawn; the rest comes from the whole list. */
const functionShare = 0.14;
const everydayShare = 0.28;
/** Words that the context decides. */
const ambiguousShare = 0.18;

export class FrenchCorpus {
  /** Articles, pronouns and their like. */
  readonly #function: Spellings[];
  readonly #everyday: Spellings[];
  readonly #ambiguous: Spellings[] = [];
  readonly #training: Spellings[] = [];
  readonly #heldOut: Spellings[] = [];
  readonly #preferred: ReadonlySet<string>;

  constructor() {
    const all = new Map<string, Spellings>();
    const take = (word: string): Spellings[] => {
      const plain = plainWord(word);
      if (plain === undefined || plain.letters.length > lettersMax) return [];
      const spellings = all.get(plain.letters) ?? new Spellings(plain.letters);
      spellings.add(word);
      all.set(plain.letters, spellings);
      return [spellings];
    };
    for (const word of readWordList(wordList)) if (!/\p{Lu}/u.test(word)) take(word);
    const common = commonWords('fr').filter((word) => !word.includes("'"));
    const everyday = everydayWords.map((word) => word.toLowerCase());
    this.#preferred = new Set([...common, ...everyday]);
    this.#function = common.flatMap(take);
    this.#everyday = [...everyday.flatMap(take), ...everydayVerbs.flatMap(commonForms).flatMap(take)];
    const known = new Set([...this.#function, ...this.#everyday]);
    for (const spellings of all.values()) {
      if (known.has(spellings)) continue;
      if (isHeldOut(spellings.letters)) this.#heldOut.push(spellings);
      else this.#training.push(spellings);
    }
    this.#ambiguous = [...this.#training, ...this.#everyday].filter((spellings) => spellings.isParticipleOrNot);
  }

  get counts(): Readonly<Record<'function' | 'everyday' | 'ambiguous' | 'training' | 'heldOut', number>> {
    return {
      function: this.#function.length,
      everyday: this.#everyday.length,
      ambiguous: this.#ambiguous.length,
      training: this.#training.length,
      heldOut: this.#heldOut.length,
    };
  }

  /** From the whole list the shorter of two words, since those are used more. */
  draw(random: SeededRandom): Sample {
    let share = random.next();
    if (share < functionShare) return this.#sample(random.pick(this.#function), random);
    share -= functionShare;
    if (share < everydayShare) return this.#sample(random.pick(this.#everyday), random);
    share -= everydayShare;
    if (share < ambiguousShare) return this.#sample(random.pick(this.#ambiguous), random);
    const first = random.pick(this.#training);
    const second = random.pick(this.#training);
    return this.#sample(second.letters.length < first.letters.length ? second : first, random);
  }

  /** `count` words of stems that {@link draw} never gives. */
  *heldOut(count: number, random: SeededRandom): Generator<Sample> {
    for (let index = 0; index < count; index++) yield this.#sample(random.pick(this.#heldOut), random);
  }

  #sample(spellings: Spellings, random: SeededRandom): Sample {
    const context = random.chance(0.2) ? 'auxiliary' : random.pick(contexts);
    const word = plainWord(spellings.chosen(context, this.#preferred));
    if (word === undefined) throw new Error(`'${spellings.letters}' has a spelling that cannot be encoded`);
    return { letters: word.letters, context, targets: word.marks.map((mark) => marks.indexOf(mark)) };
  }
}

/** The forms of a regular verb that are used most. */
function commonForms(verb: string): string[] {
  const stem = verb.slice(0, -2);
  // préférer, but je préfère: the vowel before the last consonants opens where the ending is silent.
  const open = stem.replace(/é(?=[a-z]$|[bcdfgpt][lr]$)|e(?=[cdgmnprsv]$)|(?<=ach)e(?=t$)/, 'è');
  return [verb, `${stem}é`, `${stem}ée`, `${stem}ez`, `${open}e`, `${open}es`, `${open}ent`];
}

/** One stem in 25, a stem being the first 5 letters, so that no form of a held-out verb is trained on. */
function isHeldOut(letters: string): boolean {
  let hash = 0;
  for (const letter of letters.slice(0, 5)) hash = (Math.imul(hash, 31) + letter.charCodeAt(0)) >>> 0;
  return hash % 25 === 0;
}
