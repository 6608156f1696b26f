/** Weighted sums of elements that tables name for each coordinate of an axis: what Resize, Pad and Col2Im are made of. */
import { asBits, forEachElement, written, type Use } from '../common/elements.ts';
import { coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import type { Kernels, Value } from '../types.ts';

/**
 * Inputs: x; the result where the first place of an axis is -1, or none; then for each of `axes` the places that each
 * coordinate reads, up to a place of -1, and their weights, or none where elements are only moved. Products and sums are
 * rounded one after the other in ONNX Runtime's order, in which the last axis moves first: for integers the result is
 * truncated, so the last bit matters. `strides`: from one coordinate or place of each of the output's axes to the next
 * in the input, if they are not those of the input's own axes.
 */
export const resample = {
  type: 'turntable.Resample',
  emit(emitter) {
    const given = emitter.required(0);
    const output = requiredOutput(emitter);
    const axes = emitter.attribute<readonly number[]>('axes', []);
    const isMoved = emitter.input(3) === undefined;
    const declared = (value: Value): Value => (isMoved ? asDeclared(emitter, value) : value);
    const input = declared(given);
    const value = emitter.input(1);
    const beyond = value && declared(value);
    const [exact, letter] = input.datatype === 'FP64' ? ['double', 'd'] : ['float', 'f'];
    const tables: Record<string, Use> = {};
    for (const [index, axis] of axes.entries()) {
      tables[`places${axis}`] = emitter.required(2 + 2 * index);
      const weights = emitter.input(3 + 2 * index);
      if (weights !== undefined) tables[`weights${axis}`] = weights;
    }
    const tensors = isMoved
      ? { ...tables, input: asBits(input), beyond: beyond && asBits(beyond), output: asBits(written(output)) }
      : { ...tables, input, beyond, output: written(output) };
    const at = coordinates('i', output.shape);
    const strides = emitter.attribute<readonly number[]>('strides', stridesOf(input.shape));
    const moved = at.map((place, axis) => (axes.includes(axis) ? `p${axis}` : place));
    forEachElement(emitter, 'resample', output.elements, tensors, (of) => {
      const element = of.input.at(weightedSum(moved, strides));
      const firsts = axes.map((axis, index) => {
        const taps = emitter.required(2 + 2 * index).shape[1]!;
        return { axis, taps, first: `(${at[axis]}) * ${taps}u` };
      });
      const lines: string[] = [];
      if (of.beyond !== undefined && axes.length > 0) {
        const isBeyond = firsts.map(({ axis, first }) => `places${axis}[${first}] < 0`).join(' || ');
        lines.push(`if (${isBeyond}) {`, of.output.set('i', of.beyond.at('0')), 'return;', '}');
      }
      if (isMoved) {
        lines.push(...firsts.map(({ axis, first }) => `const auto p${axis} = places${axis}[${first}];`));
        return [...lines, of.output.set('i', element)];
      }
      const weights = axes.toReversed().map((axis) => `w${axis}`);
      const product = [...weights, `(${exact})${element}`].reduce((a, b) => `__${letter}mul_rn(${a}, ${b})`);
      return [
        ...lines,
        `${exact} sum = 0;`,
        ...firsts.flatMap(({ axis, taps, first }) => [
          `for (u32 t${axis} = 0; t${axis} < ${taps}u; t${axis}++) {`,
          `const auto p${axis} = places${axis}[${first} + t${axis}];`,
          `if (p${axis} < 0) break;`,
          `const ${exact} w${axis} = weights${axis}[${first} + t${axis}];`,
        ]),
        `sum = __${letter}add_rn(sum, ${product});`,
        ...axes.map(() => '}'),
        of.output.set('i', `(${exact})sum`),
      ];
    });
  },
} satisfies Kernels;
