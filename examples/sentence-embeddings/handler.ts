/** POST `{"sentences": ["a cat", "the dog"]}` and get `{"embeddings": [[...], [...]]}`, vectors of length 1. */
import { readFileSync } from 'node:fs';
import { Tokenizer } from '@huggingface/tokenizers';
import type { HandlerCall, HandlerTensor } from 'turntable';

const sentencesMax = 32;
const tokensMax = 256;
const beside = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8');
const tokenizer = new Tokenizer(JSON.parse(beside('tokenizer.json')) as object, {});

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const encoded = sentencesOf(request).map((sentence) => truncated(tokenizer.encode(sentence).ids));
  const length = Math.max(...encoded.map((ids) => ids.length));
  const shape = [encoded.length, length];
  const ids = new BigInt64Array(encoded.length * length);
  const mask = new BigInt64Array(encoded.length * length);
  for (const [row, tokens] of encoded.entries()) {
    for (const [column, token] of tokens.entries()) {
      ids[row * length + column] = BigInt(token);
      mask[row * length + column] = 1n;
    }
  }
  return [
    { name: 'input_ids', datatype: 'INT64', shape, data: ids },
    { name: 'attention_mask', datatype: 'INT64', shape, data: mask },
  ];
}

export function postprocess(tensors: readonly HandlerTensor[]): { embeddings: number[][] } {
  const { shape = [], data } = tensors.find(({ name }) => name === 'sentence_embedding') ?? {};
  const [rows = 0, width = 0] = shape;
  const values = data as Float32Array;
  return { embeddings: Array.from({ length: rows }, (_, row) => [...values.subarray(row * width, (row + 1) * width)]) };
}

/** As `truncation=True` of transformers: the text loses its end, and not the special token after it. */
function truncated(ids: readonly number[]): readonly number[] {
  return ids.length <= tokensMax ? ids : [...ids.slice(0, tokensMax - 1), ids.at(-1)!];
}

function sentencesOf(request: HandlerCall): string[] {
  const { sentences } = Object(request.json()) as { sentences?: unknown };
  const isList = Array.isArray(sentences) && sentences.every((each) => typeof each === 'string');
  if (isList && sentences.length > 0 && sentences.length <= sentencesMax) return sentences;
  throw Object.assign(new Error(`'sentences' must be a list of 1 to ${sentencesMax} texts`), { status: 400 });
}
