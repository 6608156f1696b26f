/** POST `{"text": "I love this film"}` and get `{"label": "POSITIVE", "score": 0.98}`. */
import { readFileSync } from 'node:fs';
import { Tokenizer } from '@huggingface/tokenizers';
import type { HandlerCall, HandlerTensor } from 'turntable';

const tokensMax = 512;
const beside = (name: string): object => JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8')) as object;
const tokenizer = new Tokenizer(beside('tokenizer.json'), {});
const config = beside('config.json') as {
  readonly id2label: Readonly<Record<string, string>>;
  readonly type_vocab_size?: number;
};

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const { text } = Object(request.json()) as { text?: unknown };
  if (typeof text !== 'string') throw Object.assign(new Error("'text' must be a text"), { status: 400 });
  const ids = truncated(tokenizer.encode(text).ids);
  return [
    tensor('input_ids', ids),
    tensor(
      'attention_mask',
      ids.map(() => 1),
    ),
    // BERT's own; DistilBERT and RoBERTa take none.
    ...((config.type_vocab_size ?? 0) > 1
      ? [
          tensor(
            'token_type_ids',
            ids.map(() => 0),
          ),
        ]
      : []),
  ];
}

function tensor(name: string, values: readonly number[]): HandlerTensor {
  return { name, datatype: 'INT64', shape: [1, values.length], data: BigInt64Array.from(values, BigInt) };
}

/** As `truncation=True`: the text loses its end, and not the special token after it. */
function truncated(ids: readonly number[]): readonly number[] {
  return ids.length <= tokensMax ? ids : [...ids.slice(0, tokensMax - 1), ids.at(-1)!];
}

export function postprocess(tensors: readonly HandlerTensor[]): { label: string; score: number } {
  const found = tensors.find(({ name }) => name === 'logits');
  const logits = Array.from(found?.data ?? [], Number);
  const most = Math.max(...logits);
  const sum = logits.reduce((total, each) => total + Math.exp(each - most), 0);
  return { label: config.id2label[logits.indexOf(most)] ?? 'unknown', score: Math.round(1000 / sum) / 1000 };
}
