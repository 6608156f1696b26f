/**
 * French words to numbers and back, in one place for training and serving: a word as letters without accents, the mark
 * that each letter lost, and what can be known of a word from its neighbours.
 */

/** What may be missing from a letter; the index is the model's class. */
export const marks = ['none', 'grave', 'acute', 'circumflex', 'diaeresis', 'cedilla', 'ligature'] as const;
export type Mark = (typeof marks)[number];

const combining: Readonly<Partial<Record<Mark, string>>> = {
  grave: '\u0300',
  acute: '\u0301',
  circumflex: '\u0302',
  diaeresis: '\u0308',
  cedilla: '\u0327',
};

const marksOfLetter: Readonly<Record<string, readonly Mark[]>> = {
  a: ['grave', 'circumflex'],
  c: ['cedilla'],
  e: ['grave', 'acute', 'circumflex', 'diaeresis'],
  i: ['circumflex', 'diaeresis'],
  o: ['circumflex'],
  u: ['grave', 'circumflex', 'diaeresis'],
  y: ['diaeresis'],
};

/** What stands before a word, as far as it decides between spellings: `il a`, `vers la`; `je mange`, `j'ai mangé`. */
export const contexts = ['start', 'auxiliary', 'clitic', 'determiner', 'hyphen', 'other'] as const;
export type Context = (typeof contexts)[number];

const wordsOfContext: readonly (readonly [Context, string])[] = [
  [
    'auxiliary',
    `ai as a avons avez ont avais avait avions aviez avaient aurai auras aura aurons aurez auront aurais aurait auraient
     ayant avoir suis es est sommes êtes etes sont étais etais était etait étions etions étaient etaient été ete serai
     seras sera serons serez seront serais serait être etre pas jamais déjà deja`,
  ],
  ['clitic', "je j' tu il elle on nous vous ils elles qui ça ca cela y me m' te t' se s' n' lui leur en"],
  [
    'determiner',
    `le la l' les un une des du au aux ce cet cette ces mon ma mes ton ta tes son sa ses notre nos votre vos quel quelle
     quels quelles chaque deux trois de d'`,
  ],
];
const contextOfWord = new Map(
  wordsOfContext.flatMap(([context, words]) => words.split(/\s+/).map((word) => [word, context])),
);

/** Symbols of the model's input: 0 pads, 1 to 26 are letters, then one for each context. */
export const symbolCount = 1 + 26 + contexts.length;
/** Longest word that the model looks at; it covers every word of French but a few made-up ones. */
export const lettersMax = 25;
/** The context, then the letters. */
export const sequenceLength = 1 + lettersMax;

/** A word without its accents. */
export interface PlainWord {
  /** a to z. */
  readonly letters: string;
  /** The mark that each letter lost. */
  readonly marks: readonly Mark[];
}

/** Takes the accents off a lower-case word; undefined when a letter is none that French writes. */
export function plainWord(word: string): PlainWord | undefined {
  let letters = '';
  const lost: Mark[] = [];
  for (const character of word.normalize('NFC')) {
    if (character === 'œ' || character === 'æ') {
      letters += character === 'œ' ? 'oe' : 'ae';
      lost.push('ligature', 'none');
      continue;
    }
    const [letter = '', accent] = character.normalize('NFD');
    const mark = marks.find((mark) => combining[mark] === accent);
    if (!/[a-z]/.test(letter)) return undefined;
    if (accent !== undefined && (mark === undefined || marksOfLetter[letter]?.includes(mark) !== true))
      return undefined;
    letters += letter;
    lost.push(accent === undefined ? 'none' : (mark ?? 'none'));
  }
  return { letters, marks: lost };
}

/** Whether French writes this mark at this place of a word without accents. */
export function isPossible(letters: string, at: number, mark: Mark): boolean {
  const letter = letters[at] ?? '';
  if (mark === 'none') return true;
  if (mark === 'ligature') return (letter === 'o' || letter === 'a') && letters[at + 1] === 'e';
  return marksOfLetter[letter]?.includes(mark) ?? false;
}

/** Puts marks on a word of plain letters, upper or lower case. */
export function accented(word: string, marksOfWord: readonly Mark[]): string {
  let result = '';
  for (let at = 0; at < word.length; at++) {
    const letter = word[at] ?? '';
    const mark = marksOfWord[at] ?? 'none';
    if (mark === 'ligature') {
      const lower = letter.toLowerCase() === 'o' ? 'œ' : 'æ';
      result += letter === letter.toLowerCase() ? lower : lower.toUpperCase();
      at++;
    } else result += (letter + (combining[mark] ?? '')).normalize('NFC');
  }
  return result;
}

/** Writes a word and its context into a row of the model's input; returns the symbols written. */
export function encodeWord(letters: string, context: Context, row: Int32Array): number {
  row[0] = 27 + contexts.indexOf(context);
  for (let at = 0; at < letters.length; at++) row[at + 1] = letters.charCodeAt(at) - 96;
  return letters.length + 1;
}

/** One word of a text, where it stands, and its context. */
export interface TextWord {
  readonly word: string;
  readonly start: number;
  readonly context: Context;
}

const wordPattern = /\p{Script=Latin}+(?:['’](?=\p{Script=Latin}))?/gu;

/** The words of a text in Unicode's composed form, elided ones (l', qu') with their apostrophe. */
export function* textWords(text: string): Generator<TextWord> {
  let previous: string | undefined;
  let end = 0;
  for (const match of text.matchAll(wordPattern)) {
    const [word] = match;
    const start = match.index;
    const between = text.slice(end, start);
    end = start + word.length;
    let context: Context;
    // In `a-t-il` the verb comes before its subject, and in `ma sœur a acheté` only what follows tells the verb.
    if (/^-t-/i.test(text.slice(end, end + 3))) context = 'clitic';
    else if (previous === undefined || /[^\s-]/.test(between)) context = 'start';
    else if (between === '-') context = 'hyphen';
    else context = contextOfWord.get(previous) ?? (word === 'a' && isAuxiliaryAt(text, end) ? 'clitic' : 'other');
    previous = word.toLowerCase().replace('’', "'");
    yield { word, start, context };
  }
}

const nextWord = /\s+(\p{Ll}+)(?!['’])/uy;
/** The ending of a participle, once its accent is lost. */
const participleLike = /(?:[^r]e|ee|es|i|is|it|u|us|ert)$/;
/** Words that end like one, but follow the preposition. */
const afterPreposition = new Set(
  'cause chaque cote cette ce ces ses mes tes des nous vous tous plus midi minuit huit droite gauche table peine force base'.split(
    ' ',
  ),
);

/** Whether the `a` that ends here is followed by what may be a participle. */
function isAuxiliaryAt(text: string, end: number): boolean {
  nextWord.lastIndex = end;
  const next = nextWord.exec(text)?.[1]?.normalize('NFD').replaceAll(/\p{M}/gu, '');
  if (next === undefined) return false;
  return (
    contextOfWord.get(next) === 'auxiliary' ||
    (participleLike.test(next) && next.length > 3 && !afterPreposition.has(next))
  );
}
