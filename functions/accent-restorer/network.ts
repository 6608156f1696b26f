/**
 * A gated recurrent unit in both directions (Cho et al., 2014; the reset gate after the recurrent product, as ONNX's
 * GRU with linear_before_reset=1) over the symbols of one word, two dense layers to the marks of each letter, and
 * back-propagation through time. The direction back goes first and its last state is the first state ahead, so that
 * each letter is judged with the whole word in mind. Gates stand in ONNX's order: update z, reset r, candidate c.
 *
 *     z = sigmoid(Wz x + Rz h + bz)    r = sigmoid(Wr x + Rr h + br)
 *     c = tanh(Wc x + bc + r * (Rc h + Rbc))    h' = (1 - z) * c + z * h
 */
import { Adam, parameter, type Parameter } from '../_training/adam.ts';
import type { SeededRandom } from '../_training/random.ts';
import { marks, sequenceLength, symbolCount } from './accents.ts';

export const hidden = 64;
export const markCount = marks.length;

/** One direction. A symbol picks a column of W, so that column is kept as a row: [symbol][3 * hidden]. */
class GruDirection {
  readonly input: Parameter;
  /** [3 * hidden][hidden] */
  readonly recurrent: Parameter;
  /** Of W, [3 * hidden]. */
  readonly inputBias: Parameter;
  /** Of R, [3 * hidden]. */
  readonly recurrentBias: Parameter;
  readonly parameters: readonly Parameter[];
  /** State after each step, in the order of the steps; row 0 is the start, zero at first. [step + 1][hidden] */
  readonly states = new Float32Array((sequenceLength + 1) * hidden);
  /** Gradient of the loss by each of {@link states}, filled by the caller before {@link backward}. */
  readonly stateGradients = new Float32Array((sequenceLength + 1) * hidden);
  readonly #gates = new Float32Array(sequenceLength * 3 * hidden);
  /** Rc h + Rbc, which the reset gate multiplies. [step][hidden] */
  readonly #candidateProducts = new Float32Array(sequenceLength * hidden);
  readonly #gateGradient = new Float32Array(3 * hidden);

  constructor(random: SeededRandom) {
    const bound = 1 / Math.sqrt(hidden);
    const uniform = (count: number): Float32Array =>
      Float32Array.from({ length: count }, () => random.between(-bound, bound));
    this.input = parameter(uniform(symbolCount * 3 * hidden));
    this.recurrent = parameter(uniform(3 * hidden * hidden));
    this.inputBias = parameter(new Float32Array(3 * hidden));
    this.recurrentBias = parameter(new Float32Array(3 * hidden));
    this.parameters = [this.input, this.recurrent, this.inputBias, this.recurrentBias];
  }

  /** `symbols` in the order of this direction. The first row of {@link states} is the caller's. */
  forward(symbols: ArrayLike<number>): void {
    const input = this.input.weights;
    const inputBias = this.inputBias.weights;
    const recurrent = this.recurrent.weights;
    const recurrentBias = this.recurrentBias.weights;
    const states = this.states;
    for (let step = 0; step < symbols.length; step++) {
      const before = step * hidden;
      const column = symbols[step]! * 3 * hidden;
      const gates = step * 3 * hidden;
      for (let unit = 0; unit < 3 * hidden; unit++) {
        const row = unit * hidden;
        let product = recurrentBias[unit]!;
        for (let index = 0; index < hidden; index += 4) {
          product +=
            recurrent[row + index]! * states[before + index]! +
            recurrent[row + index + 1]! * states[before + index + 1]! +
            recurrent[row + index + 2]! * states[before + index + 2]! +
            recurrent[row + index + 3]! * states[before + index + 3]!;
        }
        const fromInput = input[column + unit]! + inputBias[unit]!;
        if (unit < 2 * hidden) this.#gates[gates + unit] = 1 / (1 + Math.exp(-fromInput - product));
        else {
          this.#candidateProducts[before + unit - 2 * hidden] = product;
          const reset = this.#gates[gates + unit - hidden]!;
          this.#gates[gates + unit] = Math.tanh(fromInput + reset * product);
        }
      }
      for (let unit = 0; unit < hidden; unit++) {
        const update = this.#gates[gates + unit]!;
        const candidate = this.#gates[gates + 2 * hidden + unit]!;
        states[before + hidden + unit] = (1 - update) * candidate + update * states[before + unit]!;
      }
    }
  }

  /** Adds to the gradients of the weights. Uses up {@link stateGradients}. */
  backward(symbols: ArrayLike<number>): void {
    const recurrent = this.recurrent.weights;
    const recurrentGradients = this.recurrent.gradients;
    const states = this.states;
    const stateGradients = this.stateGradients;
    const gateGradient = this.#gateGradient;
    for (let step = symbols.length - 1; step >= 0; step--) {
      const before = step * hidden;
      const gates = step * 3 * hidden;
      const column = symbols[step]! * 3 * hidden;
      for (let unit = 0; unit < hidden; unit++) {
        const update = this.#gates[gates + unit]!;
        const reset = this.#gates[gates + hidden + unit]!;
        const candidate = this.#gates[gates + 2 * hidden + unit]!;
        const gradient = stateGradients[before + hidden + unit]!;
        const byCandidate = gradient * (1 - update) * (1 - candidate * candidate);
        gateGradient[unit] = gradient * (states[before + unit]! - candidate) * update * (1 - update);
        gateGradient[hidden + unit] = byCandidate * this.#candidateProducts[before + unit]! * reset * (1 - reset);
        // By W's part of the candidate; R's part carries the reset gate besides.
        this.input.gradients[column + 2 * hidden + unit]! += byCandidate;
        this.inputBias.gradients[2 * hidden + unit]! += byCandidate;
        gateGradient[2 * hidden + unit] = byCandidate * reset;
        stateGradients[before + unit]! += gradient * update;
      }
      for (let unit = 0; unit < 3 * hidden; unit++) {
        const gradient = gateGradient[unit]!;
        if (unit < 2 * hidden) {
          this.input.gradients[column + unit]! += gradient;
          this.inputBias.gradients[unit]! += gradient;
        }
        this.recurrentBias.gradients[unit]! += gradient;
        const row = unit * hidden;
        for (let index = 0; index < hidden; index++) {
          recurrentGradients[row + index]! += gradient * states[before + index]!;
          stateGradients[before + index]! += gradient * recurrent[row + index]!;
        }
      }
    }
  }
}

export class AccentNetwork {
  readonly ahead: GruDirection;
  readonly back: GruDirection;
  /** [hidden][2 * hidden]: the state ahead, then the state back. */
  readonly inner: Parameter;
  readonly innerBias = parameter(new Float32Array(hidden));
  /** [mark][hidden] */
  readonly outer: Parameter;
  readonly outerBias = parameter(new Float32Array(markCount));
  readonly #adam: Adam;
  /** After tanh. [symbol][hidden] */
  readonly #innerStates = new Float32Array(sequenceLength * hidden);
  readonly #innerGradient = new Float32Array(hidden);
  readonly #probabilities = new Float64Array(sequenceLength * markCount);

  constructor(random: SeededRandom) {
    this.ahead = new GruDirection(random);
    this.back = new GruDirection(random);
    const uniform = (count: number, inputs: number): Float32Array =>
      Float32Array.from({ length: count }, () => random.between(-1, 1) / Math.sqrt(inputs));
    this.inner = parameter(uniform(hidden * 2 * hidden, 2 * hidden));
    this.outer = parameter(uniform(markCount * hidden, hidden));
    this.#adam = new Adam(this.parameters);
  }

  get parameters(): readonly Parameter[] {
    const dense = [this.inner, this.innerBias, this.outer, this.outerBias];
    return [...this.ahead.parameters, ...this.back.parameters, ...dense];
  }

  /** Probability of each mark at each symbol, [symbol][mark]; the array is used again by the next call. */
  forward(symbols: Int32Array): Float64Array {
    const count = symbols.length;
    this.back.forward(symbols.toReversed());
    this.ahead.states.set(this.back.states.subarray(count * hidden, (count + 1) * hidden));
    this.ahead.forward(symbols);
    for (let at = 0; at < count; at++) {
      this.#forwardInner(at, count);
      let total = 0;
      for (let mark = 0; mark < markCount; mark++) {
        let sum = this.outerBias.weights[mark]!;
        for (let unit = 0; unit < hidden; unit++) {
          sum += this.outer.weights[mark * hidden + unit]! * this.#innerStates[at * hidden + unit]!;
        }
        // The inner states are within -1 and 1 and the weights stay small, so that the exponential needs no shift.
        total += this.#probabilities[at * markCount + mark] = Math.exp(sum);
      }
      for (let mark = 0; mark < markCount; mark++) this.#probabilities[at * markCount + mark]! /= total;
    }
    return this.#probabilities;
  }

  #forwardInner(at: number, count: number): void {
    const ahead = (at + 1) * hidden;
    const back = (count - at) * hidden;
    const weights = this.inner.weights;
    for (let unit = 0; unit < hidden; unit++) {
      const row = unit * 2 * hidden;
      let sum = this.innerBias.weights[unit]!;
      for (let index = 0; index < hidden; index++) {
        sum += weights[row + index]! * this.ahead.states[ahead + index]!;
        sum += weights[row + hidden + index]! * this.back.states[back + index]!;
      }
      this.#innerStates[at * hidden + unit] = Math.tanh(sum);
    }
  }

  /** Adds the gradient of the cross-entropy of all letters (symbol 0 is the context) and returns their loss. */
  learn(symbols: Int32Array, targets: ArrayLike<number>): number {
    const count = symbols.length;
    const probabilities = this.forward(symbols);
    this.ahead.stateGradients.fill(0);
    this.back.stateGradients.fill(0);
    const innerGradient = this.#innerGradient;
    let loss = 0;
    for (let at = 1; at < count; at++) {
      const target = targets[at - 1]!;
      loss -= Math.log(probabilities[at * markCount + target]!);
      innerGradient.fill(0);
      for (let mark = 0; mark < markCount; mark++) {
        const gradient = probabilities[at * markCount + mark]! - (mark === target ? 1 : 0);
        this.outerBias.gradients[mark]! += gradient;
        for (let unit = 0; unit < hidden; unit++) {
          this.outer.gradients[mark * hidden + unit]! += gradient * this.#innerStates[at * hidden + unit]!;
          innerGradient[unit]! += gradient * this.outer.weights[mark * hidden + unit]!;
        }
      }
      this.#backwardInner(at, count);
    }
    this.ahead.backward(symbols);
    for (let unit = 0; unit < hidden; unit++) {
      this.back.stateGradients[count * hidden + unit]! += this.ahead.stateGradients[unit]!;
    }
    this.back.backward(symbols.toReversed());
    return loss;
  }

  #backwardInner(at: number, count: number): void {
    const ahead = (at + 1) * hidden;
    const back = (count - at) * hidden;
    const { weights, gradients } = this.inner;
    for (let unit = 0; unit < hidden; unit++) {
      const state = this.#innerStates[at * hidden + unit]!;
      const gradient = this.#innerGradient[unit]! * (1 - state * state);
      this.innerBias.gradients[unit]! += gradient;
      const row = unit * 2 * hidden;
      for (let index = 0; index < hidden; index++) {
        gradients[row + index]! += gradient * this.ahead.states[ahead + index]!;
        gradients[row + hidden + index]! += gradient * this.back.states[back + index]!;
        this.ahead.stateGradients[ahead + index]! += gradient * weights[row + index]!;
        this.back.stateGradients[back + index]! += gradient * weights[row + hidden + index]!;
      }
    }
  }

  step(learningRate: number, batchSize: number): void {
    this.#adam.step(learningRate, batchSize, 5);
  }
}
