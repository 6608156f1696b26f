/** What the model is trained on: sentences of no meaning, drawn from word lists and the common words of a language. */
import type { SeededRandom } from '../_training/random.ts';
import { readWordList, type WordList } from '../_training/word-list.ts';
import { commonWords } from './common-words.ts';
import type { LanguageCode } from './features.ts';

export const wordLists: Readonly<Record<LanguageCode, readonly WordList[]>> = {
  en: [
    { file: 'american-english', package: 'wamerican' },
    { file: 'british-english', package: 'wbritish' },
  ],
  fr: [{ file: 'french', package: 'wfrench' }],
  de: [{ file: 'ngerman', package: 'wngerman' }],
  es: [{ file: 'spanish', package: 'wspanish' }],
  it: [{ file: 'italian', package: 'witalian' }],
  nl: [{ file: 'dutch', package: 'wdutch' }],
  pt: [{ file: 'portuguese', package: 'wportuguese' }],
  pl: [{ file: 'polish', package: 'wpolish' }],
};

/** The words that one language's sentences are drawn from. */
interface Vocabulary {
  readonly common: readonly string[];
  readonly short: readonly string[];
  readonly all: readonly string[];
}

const shortLengthMax = 6;

export function vocabularyOf(language: LanguageCode): Vocabulary {
  const listed = new Set<string>();
  for (const list of wordLists[language]) {
    for (const word of readWordList(list)) {
      // Names and abbreviations belong to no language, but German writes every noun with a capital.
      const capital = language === 'de' ? /\p{Lu}.*\p{Lu}|\d/u : /\p{Lu}|\d/u;
      if (!capital.test(word)) listed.add(word);
    }
  }
  const all = language === 'es' ? [...listed].flatMap(inflectSpanish) : [...listed];
  return { common: commonWords(language), short: all.filter((word) => word.length <= shortLengthMax), all };
}

/**
 * Share of words that are drawn from the common ones: about what running text has. The list of short words gets a share
 * of its own, since in the list of all they drown among long ones that nobody uses.
 */
const commonShare = 0.45;
const shortShare = 0.3;
const wordsPerSentenceMax = 12;
/** Sentences that are written without diacritics, as on a keyboard that lacks them. */
const plainShare = 0.08;

/** One sentence of 1 to 12 words, lower or upper case as the lists have them. */
export function drawSentence({ common, short, all }: Vocabulary, random: SeededRandom): string {
  let sentence = '';
  const words = 1 + random.below(wordsPerSentenceMax);
  for (let index = 0; index < words; index++) {
    const draw = random.next();
    const word = random.pick(draw < commonShare ? common : draw < commonShare + shortShare ? short : all);
    sentence += word.endsWith("'") ? word : `${word} `;
  }
  return random.chance(plainShare) ? sentence.normalize('NFD').replaceAll(/\p{M}/gu, '') : sentence;
}

/** Endings of Spanish's regular verbs: present, preterite, imperfect, future and present subjunctive. */
const spanishEndings: Readonly<Record<string, string>> = {
  ar: 'o as a amos áis an é aste ó asteis aron aba abas ábamos aban aré ará aremos arán e es emos en ando ado ada',
  er: 'o es e emos éis en í iste ió imos ieron ía ías íamos ían eré erá eremos erán a as amos an iendo ido ida',
  ir: 'o es e imos ís en í iste ió ieron ía ías íamos ían iré irá iremos irán a as amos an iendo ido ida',
};

/** The Spanish list has only the forms of a dictionary: the regular forms of a verb and plurals are made here. */
function inflectSpanish(word: string): string[] {
  const endings = spanishEndings[word.slice(-2)];
  if (endings !== undefined && word.length > 4) {
    return [word, ...endings.split(' ').map((ending) => word.slice(0, -2) + ending)];
  }
  if (/[aeo]$/.test(word)) return [word, `${word}s`];
  if (/[dlnrz]$/.test(word)) return [word, `${word.replace(/z$/, 'c')}es`];
  return [word];
}
