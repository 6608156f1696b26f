/**
 * Text to numbers, in one place for training and serving: the character n-grams of each word, hashed to rows of the
 * model's table.
 */

/** Languages in the order of the model's outputs. */
export const languages = [
  { code: 'en', name: 'English' },
  { code: 'fr', name: 'French' },
  { code: 'de', name: 'German' },
  { code: 'es', name: 'Spanish' },
  { code: 'it', name: 'Italian' },
  { code: 'nl', name: 'Dutch' },
  { code: 'pt', name: 'Portuguese' },
  { code: 'pl', name: 'Polish' },
] as const;

export type LanguageCode = (typeof languages)[number]['code'];

/** Rows of the table. Row 0 stays zero: it pads, and adds nothing wherever it stands. */
export const bucketCount = 32_768;
/** N-grams of one text that are looked at, about 40 words: enough to be sure, and the same length for every request. */
export const ngramsMax = 1024;
/** Characters of one text that are looked at. */
export const charactersMax = 8192;

/** Longest n-gram, the marks of a word's two ends included. */
const ngramLengthMax = 4;
/** A word up to this length is a feature of its own as well: short words are what tells languages apart. */
const wholeWordLengthMax = 6;

/** A run of Latin letters; an apostrophe between letters ends a word and belongs to it, as in l'|école and don'|t. */
const wordPattern = /\p{Script=Latin}+(?:['’](?=\p{Script=Latin}))?/gu;

/** One text as a row of the model's inputs. */
export interface Features {
  /** {@link ngramsMax} rows of the table, padded with 0. */
  readonly ids: Int32Array;
  /**
   * One weight each, 0 for padding: 1/sqrt(count), so that a long text is surer than a short one, but not by its
   * length.
   */
  readonly weights: Float32Array;
  /** N-grams found; 0 when the text has no Latin letter. */
  readonly count: number;
}

/** The words of a text: composed, in lower case, diacritics kept. */
export function* wordsOf(text: string): Generator<string> {
  const folded = text.slice(0, charactersMax).normalize('NFC').toLowerCase();
  for (const [word] of folded.matchAll(wordPattern)) yield word.replace('’', "'");
}

/** Hashes the n-grams of the words in their order, until {@link ngramsMax} are found. */
export function featuresOf(words: Iterable<string>): Features {
  const ids = new Int32Array(ngramsMax);
  let count = 0;
  for (const word of words) {
    const marked = `<${word}>`;
    for (let start = 0; start < marked.length && count < ngramsMax; start++) {
      let hash = hashStart;
      const end = Math.min(start + ngramLengthMax, marked.length);
      for (let at = start; at < end && count < ngramsMax; at++) {
        hash = hashNext(hash, marked.charCodeAt(at));
        // The mark of an end, by itself, says only that there was a word.
        if (at > start || (start > 0 && start < marked.length - 1)) ids[count++] = bucketOf(hash);
      }
    }
    if (word.length + 2 > ngramLengthMax && word.length <= wholeWordLengthMax && count < ngramsMax) {
      let hash = hashStart;
      for (let at = 0; at < marked.length; at++) hash = hashNext(hash, marked.charCodeAt(at));
      ids[count++] = bucketOf(hash);
    }
    if (count === ngramsMax) break;
  }
  const weights = new Float32Array(ngramsMax);
  weights.fill(1 / Math.sqrt(Math.max(count, 1)), 0, count);
  return { ids, weights, count };
}

// FNV-1a over UTF-16 code units, 32 bits.
const hashStart = 0x811c9dc5;
function hashNext(hash: number, unit: number): number {
  return Math.imul(hash ^ unit, 0x01000193);
}

function bucketOf(hash: number): number {
  // FNV's low bits are weak on short strings; folding the high half in spreads them.
  const mixed = Math.imul(hash ^ (hash >>> 15), 0x85ebca6b);
  return 1 + (((mixed ^ (mixed >>> 13)) >>> 0) % (bucketCount - 1));
}
