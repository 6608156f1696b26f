import { describe, expect, test } from 'vitest';
import type { Parameter } from '../../functions/_training/adam.ts';
import { SeededRandom } from '../../functions/_training/random.ts';
import { AccentNetwork } from '../../functions/accent-restorer/network.ts';
import { drawDigit } from '../../functions/digit-reader/draw.ts';
import { normalise } from '../../functions/digit-reader/image.ts';
import { DigitNetwork } from '../../functions/digit-reader/network.ts';

interface GradientCheck {
  /** The steepest gradient of each parameter; its size shows that there is something to compare. */
  readonly steepest: readonly number[];
  /** Largest difference of a gradient beyond what single precision and the kinks of a maximum explain. */
  readonly excess: number;
}

/**
 * Compares the gradients that `learn` adds with the difference of two losses, at the steepest and at random weights.
 */
function checkGradients(
  parameters: readonly Parameter[],
  learn: () => number,
  { change, slack }: { readonly change: number; readonly slack: number },
): GradientCheck {
  const random = new SeededRandom(3);
  let excess = Number.NEGATIVE_INFINITY;
  const steepestOfAll: number[] = [];
  for (const { weights, gradients } of parameters) {
    for (const { gradients } of parameters) gradients.fill(0);
    learn();
    const found = gradients.slice();
    const steepest = found.reduce((best, value, at) => (Math.abs(value) > Math.abs(found[best] ?? 0) ? at : best), 0);
    steepestOfAll.push(Math.abs(found[steepest] ?? 0));
    for (const at of [steepest, ...Array.from({ length: 8 }, () => random.below(weights.length))]) {
      const weight = weights[at] ?? 0;
      weights[at] = weight + change;
      const above = learn();
      weights[at] = weight - change;
      const below = learn();
      weights[at] = weight;
      const measured = (above - below) / (2 * change);
      excess = Math.max(excess, Math.abs((found[at] ?? 0) - measured) - slack - 0.03 * Math.abs(measured));
    }
  }
  return { steepest: steepestOfAll, excess };
}

describe('the networks trained here', () => {
  test('the recurrent one has the gradients of its loss', () => {
    const network = new AccentNetwork(new SeededRandom(1));
    const symbols = Int32Array.of(28, 5, 12, 5, 22, 5);
    const { steepest, excess } = checkGradients(network.parameters, () => network.learn(symbols, [2, 0, 1, 0, 0]), {
      change: 0.01,
      slack: 2e-4,
    });
    expect(Math.min(...steepest)).toBeGreaterThan(0.002);
    expect(excess).toBeLessThan(0);
  });

  test('the convolutional one has the gradients of its loss', () => {
    const random = new SeededRandom(2);
    const network = new DigitNetwork(random);
    const image = normalise(drawDigit(4, random, 28));
    const { first, second, dense, denseBias } = network;
    // At a bias of 0, blank paper is right in the kink of ReLU, where the gradient is undefined.
    for (const [at, { bias }] of [first, second].entries()) bias.weights.fill(0.05 + 0.1 * at);
    const { steepest, excess } = checkGradients(
      [first.weights, first.bias, second.weights, second.bias, dense, denseBias],
      () => network.learn(image, 4),
      // Small steps, since a maximum has kinks; single precision then blurs the difference.
      { change: 3e-4, slack: 0.01 },
    );
    expect(Math.min(...steepest)).toBeGreaterThan(0.01);
    expect(excess).toBeLessThan(0);
  });
});

function numbersOf(seed: number): number[] {
  const random = new SeededRandom(seed);
  return Array.from({ length: 20 }, () => random.next());
}

describe('the random numbers that training uses', () => {
  test('the same seed gives the same numbers, another seed others', () => {
    expect(numbersOf(5)).toEqual(numbersOf(5));
    expect(numbersOf(5)).not.toEqual(numbersOf(6));
  });

  test('they are spread evenly over 0 to 1', () => {
    const random = new SeededRandom(9);
    const counts = Array.from({ length: 10 }, () => 0);
    for (let index = 0; index < 10_000; index++) counts[Math.floor(random.next() * 10)]! += 1;
    for (const count of counts) expect(Math.abs(count - 1000)).toBeLessThan(150);
  });
});
