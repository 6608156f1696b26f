/**
 * Where operators' outputs have their rows, given those of their inputs. The records of the families say which operator
 * has which rule; a model with an operator without one needs programs of exact sizes.
 */
import { attributeOf, axisFromFront } from '../../onnx/index.ts';
import { elementCount, elements } from '../../tensor/index.ts';
import { differingAxis, outerAt, type Place } from './place.ts';
import {
  allWithRows,
  broadcastPlace,
  hasRows,
  intOf,
  intsAt,
  meet,
  mixes,
  outAt,
  rowsAt,
  sameAt,
  type Known,
  type Rule,
  type Step,
} from './step.ts';

/** An input without rows must have size 1 along the rows: another size would only fit one number of rows. */
function besides(step: Step, { axis }: Place, rank: number, known: Known): void {
  if ((known.few[axis - rank + known.few.length] ?? 1) !== 1) meet(step, 'fits only one number of rows');
}

export const broadcast: Rule = (step) => {
  const rank = step.outputs[0]!.few.length;
  const place = broadcastPlace(step, allWithRows(step), rank);
  for (const known of step.inputs) if (known !== undefined && !hasRows(known)) besides(step, place, rank, known);
  return outAt(step, place);
};

/** The memory is that of the first input, whatever the shape. */
export const reshape: Rule = (step) => [{ kind: 'rows', outer: rowsAt(step, 0).outer }];

/** Without axes it drops that of the rows where there is one. */
export const squeeze: Rule = (step) => {
  const axes = attributeOf<readonly number[]>(step.proto, 'axes', []);
  return axes.length > 0 || intsAt(step, 1) !== undefined
    ? reshape(step)
    : meet(step, 'drops the axis of a single row');
};

/** Operators that treat each entry of the first axis alone. Only the inputs at `places` may have rows. */
export const alongFirst =
  (...places: readonly number[]): Rule =>
  (step) => {
    const { place } = rowsAt(step, 0);
    for (const [index, known] of step.inputs.entries()) {
      if (!places.includes(index) || !hasRows(known)) sameAt(step, ...(index === 0 ? [] : [index]));
      else if (known.place.axis !== 0 || known.place.before !== place.before)
        meet(step, 'has its rows on another axis');
    }
    return place.axis === 0 ? outAt(step, place) : meet(step, 'does not have its rows along the first axis');
  };

/** Rows are along the first axis, one entry for each. A mask (input `maskAt`) of fewer than four axes has no batch axis. */
export const perSequence =
  (maskAt = -1): Rule =>
  (step) => {
    const inputs = allWithRows(step);
    if (step.inputs.some((known) => known?.kind === 'same' && known.few[0] === step.counts.few))
      return meet(step, 'fits only one number of rows');
    const mask = step.inputs[maskAt];
    if (hasRows(mask) && mask.few.length < 4) return meet(step, 'has rows in a mask without a batch axis');
    const areFirst = inputs.every(({ few, place }) => place.axis === 0 && few[0] === step.counts.few);
    return areFirst ? outAt(step, { axis: 0, before: 1 }) : meet(step, 'does not have its rows along the first axis');
  };

/** Operators that work along an axis, or all axes from one on, which must not include that of the rows. */
export const alongAxis =
  (axisOf: (step: Step, rank: number) => number, isFromThereOn: (step: Step) => boolean): Rule =>
  (step) => {
    const { place, few } = rowsAt(step, 0);
    const axis = axisFromFront(axisOf(step, few.length), few.length);
    const others = allWithRows(step);
    broadcastPlace(step, others, few.length);
    const isApart = isFromThereOn(step) ? place.axis < axis : place.axis !== axis;
    return isApart ? outAt(step, place) : mixes(step, 'works along the rows');
  };

export const always = (): boolean => true;
export const never = (): boolean => false;
export const axisAttribute =
  (otherwise: number) =>
  (step: Step): number =>
    intOf(step, 'axis', otherwise);

/** Before opset 13 the axis splits the tensor into a matrix, and softmax works along its rows. */
export const softmax = alongAxis(
  (step) => intOf(step, 'axis', step.opset < 13 ? 1 : -1),
  ({ opset }) => opset < 13,
);

/** Channels are axis 1; further outputs are for training. */
export const batchNormalization: Rule = (step) => {
  const { place } = rowsAt(step, 0);
  sameAt(step, 1, 2, 3, 4);
  if (intOf(step, 'training_mode', 0) !== 0 || step.outputs[1] !== undefined)
    return mixes(step, 'takes the mean of all rows');
  return place.axis === 1 ? meet(step, 'has its rows along the channels') : outAt(step, place);
};

const transposes = ['transA', 'transB', 'transBatchA', 'transBatchB'];

export const matrixProduct =
  (left: number, right: number): Rule =>
  (step) => {
    const [a, b] = [step.inputs[left]!, step.inputs[right]!];
    allWithRows(step).forEach((known) => known === a || known === b || meet(step, 'has rows beside its factors'));
    if (step.outputs[0]!.few.length < 2) return meet(step, 'gives a vector');
    // A vector is a matrix whose only row or column the result does not have.
    const rank = Math.max(a.few.length, b.few.length);
    const isTransposed = transposes.some((name) => intOf(step, name, 0) !== 0);
    if (isTransposed) return meet(step, 'transposes its factors');
    // Rows of the left matrix and columns of the right one become those of the result; the other axes are summed.
    if (hasRows(a) && (a.few.length < 2 || a.place.axis === a.few.length - 1)) return mixes(step, 'adds up rows');
    if (hasRows(b) && (b.few.length < 2 || b.place.axis === b.few.length - 2)) return mixes(step, 'adds up rows');
    if (hasRows(a) && hasRows(b) && Math.max(a.place.axis - a.few.length, b.place.axis - b.few.length) >= -2)
      return mixes(step, 'multiplies rows with each other');
    const place = broadcastPlace(step, [a, b].filter(hasRows), rank);
    if (place.axis < rank - 2) for (const known of [a, b]) if (!hasRows(known)) besides(step, place, rank, known);
    return outAt(step, place);
  };

/** It quantizes its left factor by the range of all rows. */
export const quantizedProduct: Rule = (step) =>
  step.others === 'joined' && hasRows(step.inputs[0])
    ? mixes(step, 'quantizes all rows by one range')
    : matrixProduct(0, 1)(step);

export const gemm: Rule = (step) => {
  const { place } = rowsAt(step, 0);
  sameAt(step, 1);
  if (place.axis !== (intOf(step, 'transA', 0) === 0 ? 0 : 1)) return mixes(step, 'adds up rows');
  const after = { axis: 0, before: place.before };
  const addend = step.inputs[2];
  if (hasRows(addend)) {
    const { axis, before } = broadcastPlace(step, [addend], 2);
    if (axis !== 0 || before !== after.before) return meet(step, 'has its rows on different axes');
  } else sameAt(step, 2);
  if (addend !== undefined && !hasRows(addend)) besides(step, after, 2, addend);
  return outAt(step, after);
};

export const transpose: Rule = (step) => {
  const { few, place } = rowsAt(step, 0);
  const backwards = few.map((_, axis) => few.length - 1 - axis);
  const order = attributeOf<readonly number[]>(step.proto, 'perm', backwards);
  return outAt(step, { axis: order.indexOf(place.axis), before: place.before });
};

export const concat: Rule = (step) => {
  const inputs = allWithRows(step);
  if (inputs.length !== step.inputs.length) return meet(step, 'joins inputs with rows and inputs without');
  const rank = inputs[0]!.few.length;
  const place = broadcastPlace(step, inputs, rank);
  return axisFromFront(intOf(step, 'axis', 0), rank) === place.axis ? meet(step, 'joins batches') : outAt(step, place);
};

export const split: Rule = (step) => {
  const { few, place } = rowsAt(step, 0);
  sameAt(step, 1);
  return axisFromFront(intOf(step, 'axis', 0), few.length) === place.axis
    ? meet(step, 'splits the batch')
    : outAt(step, place);
};

export const slice: Rule = (step) => {
  const { few, many, place } = rowsAt(step, 0);
  // The ends (input 2) may contain the number of rows; the slice along other axes follows from its starts and sizes.
  sameAt(step, 1, 3, 4);
  const strides = intsAt(step, 4) ?? [];
  const axes = intsAt(step, 3)?.map((axis) => axisFromFront(axis, few.length)) ?? strides.map((_, axis) => axis);
  const isBackwards = axes.some((axis, at) => axis === place.axis && (strides[at] ?? 1) < 0);
  const [output] = step.outputs;
  const keepsRows = output?.few[place.axis] === few[place.axis] && output?.many[place.axis] === many[place.axis];
  return keepsRows && !isBackwards ? outAt(step, place) : meet(step, 'takes some of the rows');
};

/** Broadcasts rows like other operators, or makes rows from an axis of size 1. */
export const expand: Rule = (step) => {
  const [data, output] = [step.inputs[0]!, step.outputs[0]!];
  const rank = output.few.length;
  if (hasRows(data)) {
    const axis = data.place.axis + rank - data.few.length;
    const isKept = output.few[axis] === data.few[data.place.axis];
    return isKept ? outAt(step, { axis, before: data.place.before }) : meet(step, 'repeats the batch');
  }
  sameAt(step, 0);
  const axis = differingAxis(output);
  if (axis === undefined) return meet(step, 'depends on the number of rows');
  const isOne = (data.few[axis - rank + data.few.length] ?? 1) === 1;
  return isOne ? outAt(step, { axis, before: 1 }) : meet(step, 'repeats entries that are not rows');
};

/** Constants for each row. */
export const constantOfShape: Rule = (step) => {
  const axis = differingAxis(step.outputs[0]!);
  return axis === undefined ? meet(step, 'depends on the number of rows') : outAt(step, { axis, before: 1 });
};

export function reducedAxes(step: Step): readonly number[] {
  const inAttribute = attributeOf<readonly number[]>(step.proto, 'axes', []);
  return inAttribute.length > 0 ? inAttribute : (intsAt(step, 1) ?? []);
}

export const reducing =
  (axesOf: (step: Step) => readonly number[]): Rule =>
  (step) => {
    const { few, place } = rowsAt(step, 0);
    const axes = axesOf(step).map((axis) => axisFromFront(axis, few.length));
    if (axes.length === 0 && intOf(step, 'noop_with_empty_axes', 0) === 1) return outAt(step, place);
    if (axes.length === 0 || axes.includes(place.axis)) return mixes(step, 'reduces the batch');
    const gone = intOf(step, 'keepdims', 1) === 1 ? 0 : axes.filter((axis) => axis < place.axis).length;
    return outAt(step, { axis: place.axis - gone, before: place.before });
  };

export const pad: Rule = (step) => {
  const { few, place } = rowsAt(step, 0);
  sameAt(step, 1, 2, 3);
  const given = attributeOf<readonly number[]>(step.proto, 'pads', []);
  const pads = given.length > 0 ? given : (intsAt(step, 1) ?? []);
  const axes = (intsAt(step, 3) ?? few.map((_, axis) => axis)).map((axis) => axisFromFront(axis, few.length));
  const at = axes.indexOf(place.axis);
  const isLeft = at < 0 || (pads[at] === 0 && pads[at + axes.length] === 0);
  return isLeft ? outAt(step, place) : meet(step, 'pads the batch');
};

/** The sizes of the result (input 3) may contain the number of rows. */
export const resize: Rule = (step) => {
  const { few, many, place } = rowsAt(step, 0);
  sameAt(step, 1, 2);
  const [output] = step.outputs;
  const keepsRows = output?.few[0] === few[0] && output?.many[0] === many[0];
  return place.axis === 0 && keepsRows ? outAt(step, place) : meet(step, 'resizes the batch');
};

export const quantization: Rule = (step) => {
  const { few, place } = rowsAt(step, 0);
  sameAt(step, 1, 2);
  const isWhole = elementCount(step.inputs[1]?.few ?? []) === 1;
  const isApart = isWhole || axisFromFront(intOf(step, 'axis', 1), few.length) !== place.axis;
  return isApart && intOf(step, 'block_size', 0) === 0 ? outAt(step, place) : meet(step, 'has a scale for each row');
};

/** The range of the elements does not change if each additional row repeats one; other rows may widen it. */
export const dynamicQuantization: Rule = (step) => {
  if (step.others === 'joined') return mixes(step, 'quantizes all rows by one range');
  const [quantized] = outAt(step, rowsAt(step, 0).place);
  return [quantized!, { kind: 'same' }, { kind: 'same' }];
};

/** The batch is the second axis of sequences and states, the first of lengths, and the third of the first output. */
export const recurrent: Rule = (step) => {
  if (intOf(step, 'layout', 0) !== 0) return meet(step, 'has its batch first');
  step.inputs.forEach((known, place) => {
    if (!hasRows(known)) {
      sameAt(step, place);
      // There is one length and one state for each row.
      if (known !== undefined && place > 3 && place < 7) meet(step, 'fits only one number of rows');
    } else if (known.place.axis !== (place === 4 ? 0 : 1) || known.few[known.place.axis] !== step.counts.few)
      meet(step, 'has its rows on another axis');
  });
  rowsAt(step, 0);
  return step.outputs.map((sizes, place) =>
    sizes === undefined
      ? { kind: 'other' }
      : { kind: 'rows', outer: outerAt(sizes.few, { axis: place === 0 ? 2 : 1, before: 1 }) },
  );
};

/** The second output (indices in the whole tensor, a mask) depends on the number of rows. */
export const withoutIndices =
  (rule: Rule): Rule =>
  (step) =>
    rule(step).map((outcome, place) => (place === 0 ? outcome : { kind: 'other' }));

/** In training it draws a random mask. */
export const dropout: Rule = (step) => {
  const training = step.inputs[2];
  const isOn = training !== undefined && (training.constant === undefined || elements(training.constant)[0] !== 0);
  return isOn ? meet(step, 'may be in training mode') : withoutIndices(broadcast)(step);
};
