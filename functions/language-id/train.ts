/**
 * Trains the language model from Debian's word lists and writes model.onnx beside this file:
 *
 *     npx tsx functions/language-id/train.ts
 *
 * The model is a softmax regression on hashed character n-grams: a table with one row of 8 weights for each bucket, the
 * rows of a text's n-grams summed up. The table is kept in 8 bits.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { openFunction } from '../_training/call-function.ts';
import { SeededRandom } from '../_training/random.ts';
import { requireWordLists } from '../_training/word-list.ts';
import { drawSentence, vocabularyOf, wordLists } from './corpus.ts';
import { bucketCount, featuresOf, languages, ngramsMax, wordsOf } from './features.ts';
import * as handler from './handler.ts';

const folder = import.meta.dirname;
const classCount = languages.length;
const sentencesPerLanguage = 60_000;
const learningRate = 0.5;
/** Target for the right language; the rest is spread over all, which keeps the answer of short texts modest. */
const smoothing = 0.02;

/** Softmax regression by stochastic gradient descent with Adagrad; returns the table, [bucket][class]. */
function trainTable(random: SeededRandom): Float32Array {
  const vocabularies = languages.map(({ code }) => vocabularyOf(code));
  for (const [index, { code }] of languages.entries()) {
    console.log(`${code}: ${vocabularies[index]?.all.length.toLocaleString('en')} words`);
  }
  const table = new Float32Array(bucketCount * classCount);
  const squares = new Float32Array(bucketCount * classCount).fill(1e-6);
  const scores = new Float64Array(classCount);
  const total = sentencesPerLanguage * classCount;
  let lossSum = 0;
  for (let step = 0; step < total; step++) {
    const target = step % classCount;
    const vocabulary = vocabularies[target];
    if (vocabulary === undefined) throw new Error(`no vocabulary of language ${target}`);
    const { ids, weights, count } = featuresOf(wordsOf(drawSentence(vocabulary, random)));
    if (count === 0) continue;
    const weight = weights[0] ?? 0;
    softmax(table, ids, count, weight, scores);
    lossSum -= Math.log(scores[target] ?? 0);
    const rate = learningRate * (1 - step / total);
    for (let at = 0; at < count; at++) {
      const row = (ids[at] ?? 0) * classCount;
      for (let column = 0; column < classCount; column++) {
        const wanted = smoothing / classCount + (column === target ? 1 - smoothing : 0);
        const gradient = ((scores[column] ?? 0) - wanted) * weight;
        const square = (squares[row + column] ?? 0) + gradient * gradient;
        squares[row + column] = square;
        table[row + column] = (table[row + column] ?? 0) - (rate * gradient) / Math.sqrt(square);
      }
    }
    if ((step + 1) % (total / 8) === 0) {
      console.log(`${step + 1} of ${total} sentences, mean loss ${(lossSum / (total / 8)).toFixed(4)}`);
      lossSum = 0;
    }
  }
  return table;
}

function softmax(table: Float32Array, ids: Int32Array, count: number, weight: number, scores: Float64Array): void {
  scores.fill(0);
  for (let at = 0; at < count; at++) {
    const row = (ids[at] ?? 0) * classCount;
    for (let column = 0; column < classCount; column++) {
      scores[column] = (scores[column] ?? 0) + weight * (table[row + column] ?? 0);
    }
  }
  const most = Math.max(...scores);
  let sum = 0;
  for (let column = 0; column < classCount; column++) sum += scores[column] = Math.exp((scores[column] ?? 0) - most);
  for (let column = 0; column < classCount; column++) scores[column] = (scores[column] ?? 0) / sum;
}

/** Rounds to 8 bits with one scale. The largest 1 in 10,000 are cut off: they would cost all others their precision. */
function quantise(table: Float32Array): { values: Int8Array; scale: number } {
  const sizes = table.map(Math.abs).sort();
  const scale = (sizes[Math.floor(sizes.length * 0.9999)] ?? 1) / 127;
  return {
    values: Int8Array.from(table, (weight) => Math.max(-127, Math.min(127, Math.round(weight / scale)))),
    scale,
  };
}

function buildModel(table: Float32Array): GraphBuilder {
  const { values, scale } = quantise(table);
  const builder = new GraphBuilder('language-id');
  const ids = builder.input('ngram_ids', ElementType.INT32, ['batch', ngramsMax]);
  const weights = builder.input('ngram_weights', ElementType.FLOAT, ['batch', ngramsMax]);
  const rows = builder.initializer({
    name: 'ngram_table',
    datatype: 'INT8',
    shape: [bucketCount, classCount],
    data: new Uint8Array(values.buffer),
  });
  const found = builder.node('Gather', [rows, ids], { axis: 0 });
  const dequantised = builder.node('DequantizeLinear', [
    found,
    builder.weight('ngram_table_scale', [], Float32Array.of(scale)),
  ]);
  const weightRow = builder.node('Unsqueeze', [weights, builder.constant({ ints: [1] })]);
  const summed = builder.node('MatMul', [weightRow, dequantised]);
  const logits = builder.node('Squeeze', [summed, builder.constant({ ints: [1] })]);
  const scores = builder.node('Softmax', [logits], { axis: -1 });
  builder.output(scores, ElementType.FLOAT, ['batch', classCount], 'scores');
  return builder;
}

async function reportHeldOut(): Promise<void> {
  const { call } = await openFunction(folder, handler);
  const heldOut = JSON.parse(readFileSync(join(folder, 'held-out.json'), 'utf8')) as Record<string, string[]>;
  let right = 0;
  let all = 0;
  for (const [code, sentences] of Object.entries(heldOut)) {
    let rightHere = 0;
    for (const sentence of sentences) {
      const answer = (await call(sentence)) as handler.LanguageAnswer;
      if (answer.language === code) rightHere++;
      else console.log(`wrong: ${answer.language} ${answer.confidence} instead of ${code}: ${sentence}`);
    }
    console.log(`${code}: ${rightHere} of ${sentences.length}`);
    right += rightHere;
    all += sentences.length;
  }
  console.log(`held-out sentences: ${right} of ${all} right, ${((100 * right) / all).toFixed(1)}%`);
}

requireWordLists(Object.values(wordLists).flat());
const table = trainTable(new SeededRandom(20_240_501));
await writeModel(buildModel(table).build(), join(folder, 'model.onnx'));
await reportHeldOut();
