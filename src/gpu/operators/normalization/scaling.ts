/**
 * LpNormalization, MeanVarianceNormalization and Hardmax, made of other operators: reductions, row normalisation,
 * ArgMax.
 */
import { floats } from '../common/element.ts';
import { derived, operatorOf, scratchValue, permuted, emitPermutation } from '../common/derived.ts';
import { forEachElement, written } from '../common/elements.ts';
import { axisOf, broadcastIndex, product } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { emitReduction, orderingOperators, reductions } from '../reduction/index.ts';
import type { Kernels } from '../types.ts';
import { emitNormalization } from './layer-normalization.ts';

const lpNormalization = {
  type: 'LpNormalization',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const axis = axisOf(emitter.attribute('axis', -1), given.shape.length);
    const output = requiredOutput(emitter);
    if (output.elements === 0) return;
    const input = asDeclared(emitter, given);
    const norms = scratchValue(emitter, input.datatype, input.shape.with(axis, 1));
    const reduction = emitter.attribute('p', 2) === 1 ? reductions.ReduceL1 : reductions.ReduceL2;
    emitReduction(derived(emitter, { inputs: [input], outputs: [norms] }), 'lp_norm', reduction, input, [axis]);
    const tensors = { input, norms, output: written(output) };
    forEachElement(emitter, 'lp_normalization', output.elements, tensors, (of) => [
      `const ${of.norms.computed} norm = ${of.norms.at(broadcastIndex('i', norms.shape, input.shape))};`,
      of.output.set('i', `norm == 0 ? (${of.norms.computed})0 : ${of.input.at('i')} / norm`),
    ]);
  },
} satisfies Kernels;

/** Moves the normalised axes to the end, so that each mean is of a row. */
const meanVarianceNormalization = {
  type: 'MeanVarianceNormalization',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const { shape } = given;
    const named = emitter.attribute<readonly number[]>('axes', []);
    const axes = (named.length > 0 ? named : [0, 2, 3]).map((axis) => axisOf(axis, shape.length));
    const output = requiredOutput(emitter);
    if (output.elements === 0) return;
    const kept = shape.flatMap((_, axis) => (axes.includes(axis) ? [] : [axis]));
    const order = [...kept, ...shape.flatMap((_, axis) => (axes.includes(axis) ? [axis] : []))];
    const rows = permuted(emitter, 'axes_together', asDeclared(emitter, given), order);
    const straight = order.every((axis, place) => axis === place);
    const made = straight ? output : scratchValue(emitter, output.datatype, rows.shape);
    emitNormalization(derived(emitter, { inputs: [rows], outputs: [made] }), {
      hint: 'mean_variance_normalization',
      addends: [rows],
      columns: product(axes.map((axis) => shape[axis]!)),
      // As in ONNX Runtime, unlike ONNX's function body: elements that are all equal give 0 / 0 = NaN.
      epsilon: 0,
    });
    if (straight) return;
    const back = shape.map((_, axis) => order.indexOf(axis));
    emitPermutation(emitter, 'axes_back', made, rows.shape, back, output);
  },
} satisfies Kernels;

/** 1 at the first of the largest elements. Before opset 13 the axis splits the tensor into a matrix. */
const hardmax = {
  type: 'Hardmax',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const output = requiredOutput(emitter);
    if (output.elements === 0) return;
    const coerced = emitter.opset < 13;
    const named = emitter.attribute('axis', coerced ? 1 : -1);
    const split = axisOf(named, given.shape.length);
    const matrix = [product(given.shape.slice(0, split)), product(given.shape.slice(split))];
    const input = { ...asDeclared(emitter, given), shape: coerced ? matrix : given.shape };
    const axis = coerced ? 1 : split;
    const places = scratchValue(emitter, 'INT64', input.shape.with(axis, 1));
    const argMax = operatorOf(orderingOperators, 'ArgMax');
    argMax.emit(derived(emitter, { inputs: [input], outputs: [places], attributes: { axis, select_last_index: 0 } }));
    const inner = product(input.shape.slice(axis + 1));
    const at = broadcastIndex('i', places.shape, input.shape);
    forEachElement(emitter, 'hardmax', output.elements, { places, output: written(output) }, (of) =>
      of.output.set('i', `(${of.places.at(at)} == (i64)(i / ${inner}u % ${input.shape[axis]}u) ? 1.0f : 0.0f)`),
    );
  },
} satisfies Kernels;

export const scalingOperators = [
  lpNormalization,
  meanVarianceNormalization,
  hardmax,
] as const satisfies readonly Kernels[];
