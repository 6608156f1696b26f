/**
 * Einsum, written as sums, products of two operands at a time, and permutations. Axes of size 1 are dropped, and the
 * shape of the result brings them back.
 */
import { einsumLabels } from '../../onnx/index.ts';
import { elementCount, type DataType } from '../../tensor/index.ts';
import { ordinary, type OperatorFacts } from '../facts.ts';
import * as places from '../row-rules/place-rules.ts';
import { Unsupported, type Term, type Write, type Writer } from '../writing.ts';

const types: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT32', 'INT64'];

/** An operand with a label for each axis. */
interface Labelled {
  readonly term: Term;
  readonly labels: readonly string[];
}

/** The sum along some axes. */
function summed(
  writer: Writer,
  { term, labels }: Labelled,
  isGone: (label: string, axis: number) => boolean,
): Labelled {
  const axes = labels.flatMap((label, axis) => (isGone(label, axis) ? [axis] : []));
  if (axes.length === 0) return { term, labels };
  const isLeft = (_: unknown, axis: number): boolean => !axes.includes(axis);
  const sum = writer.viewed(writer.reduced('ReduceSum', term, axes), term.shape.filter(isLeft));
  return { term: sum, labels: labels.filter(isLeft) };
}

/** Without axes of size 1, and with the diagonal in place of two axes with one label. */
function operandOf(writer: Writer, given: Term, labels: readonly string[]): Labelled {
  const isLeft = (_: unknown, axis: number): boolean => given.shape[axis] !== 1;
  let operand: Labelled = {
    term: writer.viewed(given, given.shape.filter(isLeft)),
    labels: labels.filter(isLeft),
  };
  for (let axis = operand.labels.length - 1; axis > 0; axis--) {
    const first = operand.labels.indexOf(operand.labels[axis]!);
    if (first === axis) continue;
    const { term } = operand;
    const isSame = writer.map(
      'Equal',
      [first, axis].map((along) => writer.counted(along, term.shape)),
      'BOOL',
    );
    const diagonal = writer.map('Where', [isSame, term, writer.number(term.datatype, 0)], term.datatype);
    operand = summed(writer, { ...operand, term: diagonal }, (_, along) => along === axis);
  }
  return operand;
}

/** Sums up the labels that are not `needed` any more. */
function multiplied(writer: Writer, left: Labelled, right: Labelled, needed: readonly string[]): Labelled {
  const isNeeded = (label: string): boolean => needed.includes(label);
  const [a, b] = [summed(writer, left, isOnly(right)), summed(writer, right, isOnly(left))];
  function isOnly({ labels }: Labelled) {
    return (label: string) => !labels.includes(label) && !isNeeded(label);
  }
  const both = a.labels.filter((label) => b.labels.includes(label));
  const depth = both.filter((label) => !isNeeded(label));
  const batch = needed.filter((label) => both.includes(label));
  const rows = needed.filter((label) => a.labels.includes(label) && !b.labels.includes(label));
  const columns = needed.filter((label) => b.labels.includes(label) && !a.labels.includes(label));
  const sizeOf = (label: string): number =>
    a.term.shape[a.labels.indexOf(label)] ?? b.term.shape[b.labels.indexOf(label)]!;
  const labels = [...batch, ...rows, ...columns];
  const shape = labels.map(sizeOf);
  const arranged = ({ term, labels: own }: Labelled, order: readonly string[], sizes: readonly number[]): Term =>
    writer.viewed(
      writer.permuted(
        term,
        order.map((label) => own.indexOf(label)),
      ),
      sizes,
    );
  if (depth.length === 0) {
    const spread = (operand: Labelled): Term => {
      const own = labels.filter((label) => operand.labels.includes(label));
      return arranged(
        operand,
        own,
        labels.map((label) => (own.includes(label) ? sizeOf(label) : 1)),
      );
    };
    return { term: writer.map('Mul', [spread(a), spread(b)]), labels };
  }
  const items = batch.map(sizeOf);
  const [m, k, n] = [rows, depth, columns].map((of) => elementCount(of.map(sizeOf))) as [number, number, number];
  const factors = [
    arranged(a, [...batch, ...rows, ...depth], [...items, m, k]),
    arranged(b, [...batch, ...depth, ...columns], [...items, k, n]),
  ];
  const result = writer.made('MatMul', factors, { datatype: a.term.datatype, shape: [...items, m, n] });
  return { term: writer.viewed(result, shape), labels };
}

const write: Write = (writer) => {
  const equation = writer.attribute<string>('equation', '');
  const given = equation
    .replace(/->.*/, '')
    .split(',')
    .map((_, index) => writer.required(index, types));
  const { text, terms, output } = einsumLabels(
    equation,
    given.map(({ shape }) => shape.length),
  );
  const operands = given.map((term, index) => {
    if (terms[index]!.length !== term.shape.length) throw new Unsupported(`'${text}' does not fit '${term.name}'`);
    return operandOf(writer, term, terms[index]!);
  });
  const result = operands.reduce((left, right, index) =>
    multiplied(writer, left, right, [
      ...new Set([...output, ...operands.slice(index + 1).flatMap(({ labels }) => labels)]),
    ]),
  );
  const { term, labels } = summed(writer, result, (label) => !output.includes(label));
  writer.give(
    writer.permuted(
      term,
      output.filter((label) => labels.includes(label)).map((label) => labels.indexOf(label)),
    ),
  );
};

export const einsum = {
  ...ordinary,
  shapes: 'run',
  rows: places.einsum,
  layer: 'linear',
  write,
} satisfies OperatorFacts;
