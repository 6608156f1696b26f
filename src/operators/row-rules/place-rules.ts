/** Row rules of Gather, GatherElements, GatherND, OneHot and Einsum. */
import { attributeOf, axisFromFront, einsumLabels } from '../../onnx/index.ts';
import { allWithRows, broadcastPlace, hasRows, intOf, meet, mixes, outAt, rowsAt, sameAt, type Rule } from './step.ts';

export const gather: Rule = (step) => {
  const [data, indices] = [step.inputs[0]!, step.inputs[1]!];
  const axis = axisFromFront(intOf(step, 'axis', 0), data.few.length);
  if (hasRows(indices)) {
    sameAt(step, 0);
    return outAt(step, { axis: axis + indices.place.axis, before: indices.place.before });
  }
  sameAt(step, 1);
  const { place } = rowsAt(step, 0);
  if (place.axis === axis) return meet(step, 'takes some of the rows');
  const moved = place.axis > axis ? indices.few.length - 1 : 0;
  return outAt(step, { axis: place.axis + moved, before: place.before });
};

export const gatherElements: Rule = (step) => {
  const [data, indices] = [rowsAt(step, 0), rowsAt(step, 1)];
  const place = broadcastPlace(step, [data, indices], data.few.length);
  const isApart =
    axisFromFront(intOf(step, 'axis', 0), data.few.length) !== place.axis &&
    data.few[place.axis] === indices.few[place.axis];
  return isApart ? outAt(step, place) : meet(step, 'takes some of the rows');
};

/** The last axis of the indices holds tuples, along as many axes of the data, behind those of the batch. */
export const gatherNd: Rule = (step) => {
  const [data, indices] = [step.inputs[0]!, step.inputs[1]!];
  const batch = intOf(step, 'batch_dims', 0);
  const last = indices.few.length - 1;
  if (hasRows(data) && hasRows(indices)) {
    const { axis, before } = data.place;
    const isOfBatch = axis < batch && indices.place.axis === axis && indices.place.before === before;
    return isOfBatch ? outAt(step, data.place) : meet(step, 'takes some of the rows');
  }
  if (hasRows(indices)) {
    sameAt(step, 0);
    const { place } = indices;
    return place.axis >= batch && place.axis < last
      ? outAt(step, place)
      : meet(step, 'has its rows inside the index tuples');
  }
  sameAt(step, 1);
  const { place } = rowsAt(step, 0);
  const behind = batch + indices.few[last]!;
  if (place.axis < behind) return meet(step, 'takes some of the rows');
  return outAt(step, { axis: place.axis - behind + last, before: place.before });
};

export const oneHot: Rule = (step) => {
  sameAt(step, 1, 2);
  const { place, few } = rowsAt(step, 0);
  const axis = axisFromFront(intOf(step, 'axis', -1), few.length + 1);
  return outAt(step, { axis: place.axis + Number(place.axis >= axis), before: place.before });
};

/** The letter of the rows must occur once in each operand with rows, and in the result. */
export const einsum: Rule = (step) => {
  const rows = allWithRows(step);
  const ranks = step.inputs.map((known) => known?.few.length ?? 0);
  const { terms, output } = einsumLabels(attributeOf(step.proto, 'equation', ''), ranks);
  const [first] = rows;
  const letter = terms[step.inputs.indexOf(first)]?.[first!.place.axis];
  for (const [index, known] of step.inputs.entries()) {
    const places = (terms[index] ?? []).flatMap((each, axis) => (each === letter ? [axis] : []));
    if (places.length > 1) return meet(step, 'takes a diagonal of the rows');
    if (!hasRows(known)) {
      if (places.some((axis) => known!.few[axis] !== 1)) return meet(step, 'fits one number of rows alone');
    } else if (places[0] !== known.place.axis || known.place.before !== first!.place.before) {
      return meet(step, 'has its rows on different axes');
    }
  }
  const axis = output.indexOf(letter ?? '');
  return axis < 0 ? mixes(step, 'sums up the rows') : outAt(step, { axis, before: first!.place.before });
};
