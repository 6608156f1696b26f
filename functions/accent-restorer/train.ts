/**
 * Trains the accent restorer from a Debian word list and writes model.onnx beside this file:
 *
 *     npx tsx functions/accent-restorer/train.ts
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { openFunction } from '../_training/call-function.ts';
import { SeededRandom } from '../_training/random.ts';
import { requireWordLists } from '../_training/word-list.ts';
import { contexts, encodeWord, sequenceLength, symbolCount } from './accents.ts';
import { NeighbourBaseline } from './baseline.ts';
import { FrenchCorpus, wordList, type Sample } from './corpus.ts';
import * as handler from './handler.ts';
import { AccentNetwork, hidden, markCount } from './network.ts';
import { countSentences } from './sentences.ts';

const folder = import.meta.dirname;
const batchSize = 16;
const steps = 10_000;
const learningRate = 4e-3;
const heldOutWords = 3000;

function symbolsOf({ letters, context }: Sample): Int32Array {
  const row = new Int32Array(sequenceLength);
  return row.slice(0, encodeWord(letters, context, row));
}

function train(corpus: FrenchCorpus, baseline: NeighbourBaseline): AccentNetwork {
  const random = new SeededRandom(7);
  const network = new AccentNetwork(random);
  const every = 1000;
  let lossSum = 0;
  let letters = 0;
  for (let step = 1; step <= steps; step++) {
    for (let index = 0; index < batchSize; index++) {
      const sample = corpus.draw(random);
      baseline.learn(sample);
      lossSum += network.learn(symbolsOf(sample), sample.targets);
      letters += sample.letters.length;
    }
    network.step(learningRate * (1 - step / (steps + 1)), batchSize);
    if (step % every === 0) {
      console.log(`${step} of ${steps} steps, mean loss of a letter ${(lossSum / letters).toFixed(4)}`);
      lossSum = 0;
      letters = 0;
    }
  }
  return network;
}

function joined(first: Float32Array, second: Float32Array): Float32Array {
  const both = new Float32Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

/** [rows][columns] to [columns][rows] */
function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  return Float32Array.from({ length: values.length }, (_, index) => {
    return values[(index % rows) * columns + Math.floor(index / rows)] ?? 0;
  });
}

function buildModel({ ahead, back, inner, innerBias, outer, outerBias }: AccentNetwork): GraphBuilder {
  const builder = new GraphBuilder('accent-restorer');
  const symbols = builder.input('symbols', ElementType.INT32, ['batch', sequenceLength]);
  const lengths = builder.input('lengths', ElementType.INT32, ['batch']);
  // One row for each symbol with a single 1, so that a symbol picks its column of W; the padding's row is zero.
  const oneHot = new Float32Array(symbolCount * symbolCount);
  for (let symbol = 1; symbol < symbolCount; symbol++) oneHot[symbol * symbolCount + symbol] = 1;
  const table = builder.weight('symbol.weight', [symbolCount, symbolCount], oneHot);
  const byStep = builder.node('Transpose', [symbols], { perm: [1, 0] });
  const vectors = builder.node('Gather', [table, byStep], { axis: 0 });

  const gru = (name: string, direction: AccentNetwork['ahead'], first: string, attribute: string): [string, string] =>
    builder.scope(name, () => {
      const columns = transposed(direction.input.weights, symbolCount, 3 * hidden);
      return builder.node(
        'GRU',
        [
          vectors,
          builder.weight('W', [1, 3 * hidden, symbolCount], columns),
          builder.weight('R', [1, 3 * hidden, hidden], direction.recurrent.weights),
          builder.weight('B', [1, 6 * hidden], joined(direction.inputBias.weights, direction.recurrentBias.weights)),
          lengths,
          first,
        ],
        { direction: attribute, hidden_size: hidden, linear_before_reset: 1 },
        { outputs: 2 },
      );
    });
  const [statesBack, lastBack] = gru('back', back, '', 'reverse');
  const [statesAhead] = gru('ahead', ahead, lastBack, 'forward');
  // [step, direction, batch, hidden] to [batch, step, both directions]
  const states = builder.node('Concat', [statesAhead, statesBack], { axis: 1 });
  const byWord = builder.node('Transpose', [states], { perm: [2, 0, 1, 3] });
  const dense = (
    name: string,
    from: string,
    inputs: number,
    outputs: number,
    weights: Float32Array,
    bias: Float32Array,
  ) =>
    builder.scope(name, () => {
      const matrix = builder.weight('weight', [inputs, outputs], transposed(weights, outputs, inputs));
      return builder.node('Add', [builder.node('MatMul', [from, matrix]), builder.weight('bias', [outputs], bias)]);
    });
  const features = builder.node('Reshape', [byWord, builder.constant({ ints: [0, 0, 2 * hidden] })]);
  const sums = dense('inner', features, 2 * hidden, hidden, inner.weights, innerBias.weights);
  const scores = dense('outer', builder.node('Tanh', [sums]), hidden, markCount, outer.weights, outerBias.weights);
  builder.output(scores, ElementType.FLOAT, ['batch', sequenceLength, markCount], 'mark_scores');
  return builder;
}

function matches(marks: readonly number[], { targets }: Sample): boolean {
  return targets.every((target, at) => marks[at] === target);
}

function reportWords(corpus: FrenchCorpus, network: AccentNetwork, baseline: NeighbourBaseline): void {
  const right = { network: 0, baseline: 0, unchanged: 0 };
  for (const sample of corpus.heldOut(heldOutWords, new SeededRandom(8))) {
    const probabilities = network.forward(symbolsOf(sample));
    const marks = sample.targets.map((_, at) => {
      const row = probabilities.subarray((at + 1) * markCount, (at + 2) * markCount);
      return row.indexOf(Math.max(...row));
    });
    if (matches(marks, sample)) right.network++;
    if (matches(baseline.predict(sample), sample)) right.baseline++;
    if (sample.targets.every((target) => target === 0)) right.unchanged++;
  }
  const share = (count: number): string => `${((100 * count) / heldOutWords).toFixed(1)}%`;
  console.log(
    `${heldOutWords} words of held-out stems: ${share(right.network)} right; ` +
      `by the neighbouring letters ${share(right.baseline)}, left as they are ${share(right.unchanged)}`,
  );
}

async function reportSentences(): Promise<void> {
  const { call } = await openFunction(folder, handler);
  const sentences = JSON.parse(readFileSync(join(folder, 'held-out.json'), 'utf8')) as string[];
  const counts = await countSentences(sentences, async (text) => ((await call(text)) as handler.AccentAnswer).text);
  for (const { wanted, given } of counts.wrong) console.log(`wrong: ${given}\n  for: ${wanted}`);
  console.log(
    `${sentences.length} held-out sentences: ${counts.right} of ${counts.words} words right; ` +
      `left as they are ${counts.unchanged}`,
  );
}

requireWordLists([wordList]);
const corpus = new FrenchCorpus();
console.log(corpus.counts, `contexts: ${contexts.join(', ')}`);
const baseline = new NeighbourBaseline();
const network = train(corpus, baseline);
await writeModel(buildModel(network).build(), join(folder, 'model.onnx'));
reportWords(corpus, network, baseline);
await reportSentences();
