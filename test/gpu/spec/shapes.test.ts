/**
 * Shapes and types inferred without a run, on named and random cases of every operator, are never other than ONNX Runtime's.
 */
import { expect, test } from 'vitest';
import { elementTypeOf } from '../../../src/onnx/index.ts';
import { inferShapes, typedGraph } from '../../../src/operators/index.ts';
import { describeCase } from '../../support/operator-cases/case.ts';
import { casesOf, drawn, named } from '../../support/operator-cases/index.ts';
import { modelOf, referenceOf } from '../../support/operator-cases/models.ts';

const seed = Number(process.env['TURNTABLE_SEED']);
const each = Number(process.env['TURNTABLE_CASES'] ?? 4);

test(`inferred shapes and types of ${drawn.size} operators, of seed ${seed}, are those of ONNX Runtime's results`, async () => {
  const wrong: string[] = [];
  const found = { shapes: 0, types: 0, outputs: 0 };
  for (const one of [...named, ...[...drawn.keys()].flatMap((operator) => casesOf(operator, seed, each))]) {
    const made = modelOf(one);
    const expected = await referenceOf(made);
    if (expected === undefined) continue;
    const graph = typedGraph(made.model);
    const { values } = inferShapes(graph);
    for (const { name, datatype, shape } of expected) {
      const [dims, type] = [values.get(name)?.dims, graph.type(name)?.elementType];
      found.outputs++;
      if (dims !== undefined) found.shapes++;
      if (type !== undefined) found.types++;
      if (dims !== undefined && dims.join() !== shape.join())
        wrong.push(`${describeCase(one)}: ${name} is [${shape.join()}], inferred [${dims.join()}]`);
      if (type !== undefined && type !== elementTypeOf(datatype))
        wrong.push(`${describeCase(one)}: ${name} is ${datatype}, inferred as type ${type}`);
    }
  }
  expect(wrong).toEqual([]);
  // Most must be inferred: rules that infer nothing would pass too.
  expect(found.shapes).toBeGreaterThan(found.outputs * 0.7);
  expect(found.types).toBeGreaterThan(found.outputs * 0.7);
});
