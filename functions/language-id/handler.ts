/**
 * POST a sentence as UTF-8 text, or `{"text": "..."}`, and get its language:
 * `{"language": "fr", "name": "French", "confidence": 0.98, "scores": {"fr": 0.98, ...}}`, most likely first.
 */
import type { HandlerCall, HandlerTensor } from '../../src/cpu/index.ts';
import { textOf } from '../_shared/text-body.ts';
import { InputError } from '../_shared/input-error.ts';
import { featuresOf, languages, ngramsMax, wordsOf } from './features.ts';

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const { ids, weights, count } = featuresOf(wordsOf(textOf(request)));
  if (count === 0) {
    const known = languages.map(({ name }) => name).join(', ');
    throw new InputError(`the text has no Latin letters to tell a language by; the languages known are ${known}`);
  }
  return [
    { name: 'ngram_ids', datatype: 'INT32', shape: [1, ngramsMax], data: ids },
    { name: 'ngram_weights', datatype: 'FP32', shape: [1, ngramsMax], data: weights },
  ];
}

export interface LanguageAnswer {
  readonly language: string;
  readonly name: string;
  /** Probability of `language`, 0 to 1. */
  readonly confidence: number;
  /** Probability of each language by its code, most likely first. */
  readonly scores: Readonly<Record<string, number>>;
}

export function postprocess(tensors: readonly HandlerTensor[]): LanguageAnswer {
  const scores = tensors.find(({ name }) => name === 'scores')?.data as ArrayLike<number>;
  const ranked = languages
    .map(({ code, name }, index) => ({ code, name, score: Math.round((scores[index] ?? 0) * 10_000) / 10_000 }))
    .sort((a, b) => b.score - a.score);
  const [best] = ranked;
  if (best === undefined) throw new Error('the model gave no scores');
  return {
    language: best.code,
    name: best.name,
    confidence: best.score,
    scores: Object.fromEntries(ranked.map(({ code, score }) => [code, score])),
  };
}
