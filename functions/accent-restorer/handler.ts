/**
 * POST French text without accents, as UTF-8 or as `{"text": "..."}`, and get it with them:
 * `{"text": "Où est la bibliothèque ?", "changedWords": 2}`.
 */
import type { HandlerCall, HandlerTensor } from '../../src/cpu/index.ts';
import { InputError } from '../_shared/input-error.ts';
import { textOf } from '../_shared/text-body.ts';
import {
  accented,
  encodeWord,
  isPossible,
  lettersMax,
  marks,
  sequenceLength,
  textWords,
  type Mark,
  type TextWord,
} from './accents.ts';

/** Words in one request. */
const wordsMax = 500;

/** The words that the model is asked about: those that have no accent already. */
function openWords(text: string): TextWord[] {
  const words: TextWord[] = [];
  for (const word of textWords(text)) {
    if (!/^[a-z]+$/i.test(word.word) || word.word.length > lettersMax) continue;
    words.push(word);
    if (words.length > wordsMax) throw new InputError(`the text has more than ${wordsMax} words`);
  }
  return words;
}

const composedText = (request: HandlerCall): string => textOf(request).normalize('NFC');

/** One row for each word; a text without any still needs one row, whose answer nobody reads. */
export function preprocess(request: HandlerCall): HandlerTensor[] {
  const words = openWords(composedText(request));
  const rows = Math.max(1, words.length);
  const symbols = new Int32Array(rows * sequenceLength);
  const lengths = new Int32Array(rows).fill(1);
  for (const [row, { word, context }] of words.entries()) {
    const start = row * sequenceLength;
    lengths[row] = encodeWord(word.toLowerCase(), context, symbols.subarray(start, start + sequenceLength));
  }
  return [
    { name: 'symbols', datatype: 'INT32', shape: [rows, sequenceLength], data: symbols },
    { name: 'lengths', datatype: 'INT32', shape: [rows], data: lengths },
  ];
}

export interface AccentAnswer {
  readonly text: string;
  readonly changedWords: number;
}

export function postprocess(tensors: readonly HandlerTensor[], request: HandlerCall): AccentAnswer {
  const scores = tensors.find(({ name }) => name === 'mark_scores')?.data as ArrayLike<number>;
  const text = composedText(request);
  let result = '';
  let end = 0;
  let changedWords = 0;
  for (const [row, { word, start }] of openWords(text).entries()) {
    const letters = word.toLowerCase();
    const best = Array.from(letters, (_, at) =>
      bestMark(scores, (row * sequenceLength + at + 1) * marks.length, letters, at),
    );
    const restored = accented(word, best);
    if (restored !== word) changedWords++;
    result += text.slice(end, start) + restored;
    end = start + word.length;
  }
  return { text: result + text.slice(end), changedWords };
}

/** The mark with the highest score among those that the letter can have. */
function bestMark(scores: ArrayLike<number>, from: number, letters: string, at: number): Mark {
  let best: Mark = 'none';
  let bestScore = Number.NEGATIVE_INFINITY;
  for (const [index, mark] of marks.entries()) {
    const score = scores[from + index] ?? 0;
    if (score > bestScore && isPossible(letters, at, mark)) {
      best = mark;
      bestScore = score;
    }
  }
  return best;
}
