/**
 * Trains the digit reader on digits that draw.ts draws, and writes model.onnx and the example images beside this file:
 *
 *     npx tsx functions/digit-reader/train.ts
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { openFunction } from '../_training/call-function.ts';
import { SeededRandom } from '../_training/random.ts';
import { drawDigit } from './draw.ts';
import * as handler from './handler.ts';
import { heldOutDigits, pgmOf } from './held-out.ts';
import { inputSize, normalise } from './image.ts';
import { channels, classCount, DigitNetwork } from './network.ts';

const folder = import.meta.dirname;
const steps = 7000;
const batchSize = 16;
const learningRate = 3e-3;

function train(): DigitNetwork {
  const random = new SeededRandom(1);
  const network = new DigitNetwork(random);
  let lossSum = 0;
  for (let step = 1; step <= steps; step++) {
    for (let index = 0; index < batchSize; index++) {
      const digit = random.below(classCount);
      // Drawn at several sizes, since the cutting and scaling of the handler blurs each size differently.
      const image = drawDigit(digit, random, random.pick([28, 28, 40, 56]));
      lossSum += network.learn(normalise(image), digit);
    }
    network.step(learningRate * (1 - step / (steps + 1)), batchSize);
    if (step % 500 === 0) {
      console.log(`${step} of ${steps} steps, mean loss ${(lossSum / (500 * batchSize)).toFixed(4)}`);
      lossSum = 0;
    }
  }
  return network;
}

function buildModel({ first, second, dense, denseBias }: DigitNetwork): GraphBuilder {
  const builder = new GraphBuilder('digit-reader');
  let value = builder.input('image', ElementType.FLOAT, ['batch', 1, inputSize, inputSize]);
  for (const [index, layer] of [first, second].entries()) {
    value = builder.scope(`convolution.${index}`, () => {
      const weights = builder.weight(
        'weight',
        [channels[index + 1] ?? 0, channels[index] ?? 0, 3, 3],
        layer.weights.weights,
      );
      const bias = builder.weight('bias', [channels[index + 1] ?? 0], layer.bias.weights);
      const convolved = builder.node('Conv', [value, weights, bias], { kernel_shape: [3, 3], pads: [1, 1, 1, 1] });
      const rectified = builder.node('Relu', [convolved]);
      return builder.node('MaxPool', [rectified], { kernel_shape: [2, 2], strides: [2, 2] });
    });
  }
  const features = builder.node('Flatten', [value], { axis: 1 });
  const weights = builder.weight('dense.weight', [classCount, dense.weights.length / classCount], dense.weights);
  const bias = builder.weight('dense.bias', [classCount], denseBias.weights);
  const scores = builder.node('Softmax', [builder.node('Gemm', [features, weights, bias], { transB: 1 })], {
    axis: -1,
  });
  builder.output(scores, ElementType.FLOAT, ['batch', classCount], 'scores');
  return builder;
}

async function reportHeldOut(): Promise<void> {
  const { call } = await openFunction(folder, handler);
  let right = 0;
  let all = 0;
  for (const { digit, image } of heldOutDigits(200)) {
    const answer = (await call(pgmOf(image))) as handler.DigitAnswer;
    if (answer.digit === digit) right++;
    all++;
  }
  console.log(`held-out drawn digits: ${right} of ${all} right, ${((100 * right) / all).toFixed(2)}%`);
}

function writeExamples(): void {
  mkdirSync(join(folder, 'examples'), { recursive: true });
  for (const { digit, image } of heldOutDigits(1)) {
    writeFileSync(join(folder, 'examples', `${digit}.pgm`), pgmOf(image));
  }
}

await writeModel(buildModel(train()).build(), join(folder, 'model.onnx'));
writeExamples();
await reportHeldOut();
