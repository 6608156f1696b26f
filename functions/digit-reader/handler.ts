/**
 * POST an image of one written digit, as a PGM file or as JSON rows of numbers, and get the digit:
 * `{"digit": 7, "confidence": 0.99, "scores": [...]}`, the scores from 0 to 9.
 */
import type { HandlerCall, HandlerTensor } from '../../src/cpu/index.ts';
import { imageOf, inputSize, normalise } from './image.ts';

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const data = normalise(imageOf(request));
  return [{ name: 'image', datatype: 'FP32', shape: [1, 1, inputSize, inputSize], data }];
}

export interface DigitAnswer {
  readonly digit: number;
  /** Probability of `digit`, 0 to 1. */
  readonly confidence: number;
  /** Probability of each digit from 0 to 9. */
  readonly scores: readonly number[];
}

export function postprocess(tensors: readonly HandlerTensor[]): DigitAnswer {
  const output = tensors.find(({ name }) => name === 'scores');
  if (output === undefined) throw new Error('the model gave no scores');
  const scores = Array.from(output.data as ArrayLike<number>, (score) => Math.round(score * 10_000) / 10_000);
  const confidence = Math.max(...scores);
  return { digit: scores.indexOf(confidence), confidence, scores };
}
