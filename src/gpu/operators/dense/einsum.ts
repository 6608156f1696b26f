/**
 * Einsum. Two operands that share the summed labels are a matrix product, if necessary after moving their axes. In all
 * other cases a thread sums one element of the result.
 */
import { einsumLabels } from '../../../onnx/index.ts';
import { accumulatorOf, requireDatatype } from '../common/element.ts';
import { collapse, coordinates, product, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput, scratchValue } from '../common/inputs.ts';
import { forEachElement, written, type Elements } from '../common/elements.ts';
import { moveStrided, sideOf } from '../common/launching.ts';
import { type Emitter, type Kernels, Unsupported, type Value } from '../types.ts';
import { emitProduct, productTypes, type Factor } from './product.ts';

interface Operand {
  readonly value: Value;
  /** The stride of each label: the sum of both axes' for a diagonal, 0 if the operand is repeated along it. */
  readonly steps: ReadonlyMap<string, number>;
}

type Equation = ReturnType<typeof equationOf>;

function equationOf(emitter: Emitter) {
  const equation = emitter.attribute<string>('equation', '');
  const values = equation
    .replace(/->.*/, '')
    .split(',')
    .map((_, index) => emitter.required(index));
  const { text, terms, output } = einsumLabels(
    equation,
    values.map(({ shape }) => shape.length),
  );
  const sizes = new Map<string, number>();
  const labelled = values.map((given, index) => {
    requireDatatype(given, productTypes);
    const labels = terms[index]!;
    if (labels.length !== given.shape.length) throw new Unsupported(`'${text}' does not fit '${given.name}'`);
    for (const [axis, label] of labels.entries()) {
      const size = given.shape[axis]!;
      const known = sizes.get(label);
      if (known === undefined || known === 1) sizes.set(label, size);
      else if (size !== known && size !== 1) throw new Unsupported(`'${label}' of '${text}' is ${known} and ${size}`);
    }
    return { given, labels };
  });
  const operands = labelled.map(({ given, labels }): Operand => {
    const value = asDeclared(emitter, given);
    const strides = stridesOf(value.shape);
    const steps = new Map<string, number>();
    for (const [axis, label] of labels.entries()) {
      const repeated = value.shape[axis] === 1 && sizes.get(label) !== 1;
      steps.set(label, (steps.get(label) ?? 0) + (repeated ? 0 : strides[axis]!));
    }
    return { value, steps };
  });
  return { operands, sizes, output };
}

/** An operand as matrices [rows, columns] by batch. If neither rows nor columns are contiguous, it is copied first. */
function factorOf(
  emitter: Emitter,
  { value, steps }: Operand,
  sizes: ReadonlyMap<string, number>,
  labels: { readonly batch: readonly string[]; readonly rows: readonly string[]; readonly columns: readonly string[] },
): Factor {
  const walk = (of: readonly string[]) =>
    collapse(
      of.map((label) => sizes.get(label)!),
      of.map((label) => steps.get(label) ?? 0),
    );
  const [rows, columns] = [walk(labels.rows), walk(labels.columns)];
  const [rowStep, columnStep] = [rows[0]?.steps[0], columns[0]?.steps[0]];
  const batchStrides = labels.batch.map((label) => steps.get(label) ?? 0);
  const plain = { buffer: value.buffer, kept: value.datatype, batchStrides };
  if (rows.length <= 1 && columns.length <= 1) {
    const [height, width] = [rows[0]?.size ?? 1, columns[0]?.size ?? 1];
    if ((columnStep ?? 1) === 1 && (rowStep ?? width) >= width) {
      return { ...plain, leading: rowStep ?? width };
    }
    if ((rowStep ?? 1) === 1 && (columnStep ?? height) >= height) {
      return { ...plain, transposed: true, leading: columnStep ?? height };
    }
  }
  const order = [...labels.batch, ...labels.rows, ...labels.columns];
  const shape = order.map((label) => sizes.get(label)!);
  const together = scratchValue(emitter, value.datatype, shape);
  const from = sideOf(
    value,
    order.map((label) => steps.get(label) ?? 0),
  );
  moveStrided(emitter, 'einsum_operand', shape, value.datatype, from, sideOf(together, stridesOf(shape)));
  return {
    buffer: together.buffer,
    kept: value.datatype,
    leading: Math.max(1, product(labels.columns.map((label) => sizes.get(label)!))),
    batchStrides: stridesOf(shape).slice(0, labels.batch.length),
  };
}

function emitAsProduct(emitter: Emitter, { operands, sizes, output }: Equation, result: Value): boolean {
  const [a, b] = operands;
  if (a === undefined || b === undefined || operands.length > 2) return false;
  const kept = new Set(output);
  const all = [...sizes.keys()];
  const summed = all.filter((label) => !kept.has(label));
  if (summed.some((label) => !a.steps.has(label) || !b.steps.has(label))) return false;
  const batch = output.filter((label) => a.steps.has(label) && b.steps.has(label));
  const rows = output.filter((label) => a.steps.has(label) && !b.steps.has(label));
  const columns = output.filter((label) => !a.steps.has(label) && b.steps.has(label));
  const count = (labels: readonly string[]): number => product(labels.map((label) => sizes.get(label)!));
  const order = [...batch, ...rows, ...columns];
  const shape = order.map((label) => sizes.get(label)!);
  const straight = order.every((label, place) => label === output[place]);
  const made = straight ? result : scratchValue(emitter, result.datatype, shape);
  emitProduct(emitter, {
    rows: count(rows),
    columns: count(columns),
    depth: count(summed),
    batch: batch.map((label) => sizes.get(label)!),
    a: factorOf(emitter, a, sizes, { batch, rows, columns: summed }),
    b: factorOf(emitter, b, sizes, { batch, rows: summed, columns }),
    d: { buffer: made.buffer, kept: result.datatype },
  });
  if (!straight) {
    const strides = stridesOf(result.shape);
    const to = sideOf(
      result,
      order.map((label) => strides[output.indexOf(label)]!),
    );
    moveStrided(emitter, 'einsum_result', shape, result.datatype, sideOf(made, stridesOf(shape)), to);
  }
  return true;
}

function emitDirectly(emitter: Emitter, { operands, sizes, output }: Equation, result: Value): void {
  const summed = [...sizes.keys()].filter((label) => !output.includes(label));
  const places = coordinates(
    'i',
    output.map((label) => sizes.get(label)!),
  );
  const sum = accumulatorOf(result.datatype);
  const names = new Map([
    ...output.map((label, place) => [label, `(i64)${places[place]}`] as const),
    ...summed.map((label, place) => [label, `s${place}`] as const),
  ]);
  const xs = Object.fromEntries(operands.map(({ value }, index) => [`x${index}`, value]));
  forEachElement(emitter, 'einsum', result.elements, { ...xs, output: written(result) }, (of) => {
    const factors = operands.map(({ steps }, index) => {
      const at = weightedSum(
        Array.from(steps.keys(), (label) => names.get(label)!),
        [...steps.values()],
      );
      return `(${sum})${(of as Record<string, Elements>)[`x${index}`]!.at(at)}`;
    });
    return [
      `${sum} sum = 0;`,
      ...summed.map((label, place) => `for (i64 s${place} = 0; s${place} < ${sizes.get(label)}; s${place}++)`),
      `  sum += ${factors.join(' * ')};`,
      of.output.set('i', 'sum'),
    ];
  });
}

export const einsum = {
  type: 'Einsum',
  emit(emitter) {
    const equation = equationOf(emitter);
    const result = requiredOutput(emitter);
    if (result.elements === 0) return;
    if (!emitAsProduct(emitter, equation, result)) emitDirectly(emitter, equation, result);
  },
} satisfies Kernels;
