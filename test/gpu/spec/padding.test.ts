/**
 * Row rules on random attributes of every operator: if they find rows independent, a larger batch gives the same rows.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runPadded } from '../../../src/gpu/padding/padded-run.ts';
import { paddingOf } from '../../../src/gpu/padding/padding-of.ts';
import { ProgramError, type InputShapes } from '../../../src/gpu/program/index.ts';
import { writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { shapesOf } from '../../../src/gpu/index.ts';
import { rowsByGraph } from '../../../src/rows/index.ts';
import { rowParts, type Tensor } from '../../../src/tensor/index.ts';
import { describeCase, type Case } from '../../support/operator-cases/case.ts';
import { disagreement } from '../../support/operator-cases/checking.ts';
import { casesOf, drawn } from '../../support/operator-cases/index.ts';
import { modelOf, referenceOf } from '../../support/operator-cases/models.ts';

const seed = Number(process.env['TURNTABLE_SEED']);
const each = Number(process.env['TURNTABLE_CASES'] ?? 1);
const [few, many] = [3, 4];

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-padding-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A tensor with three rows along an axis, which repeat its rows in turn. */
function withFewRows(tensor: Tensor, axis: number): Tensor {
  const { shape, data } = tensor;
  const size = shape[axis]!;
  const groups = shape.slice(0, axis).reduce((product, each) => product * each, 1);
  const rowBytes = data.byteLength / (groups * size);
  const row = (group: number, index: number): Uint8Array => {
    const at = (group * size + (index % size)) * rowBytes;
    return data.subarray(at, at + rowBytes);
  };
  const parts = Array.from({ length: groups * few }, (_, index) => row(Math.floor(index / few), index % few));
  return { ...tensor, shape: shape.with(axis, few), data: new Uint8Array(Buffer.concat(parts)) };
}

interface Batched {
  readonly model: ModelProto;
  readonly inputs: readonly Tensor[];
  readonly program: InputShapes;
}

/** A case with an open number of rows along an axis of its first input, and of other inputs of the same size there. */
function batched(one: Case, axis: number): Batched | undefined {
  const first = one.inputs.find((input) => input !== undefined && !input.constant)?.tensor;
  const size = first?.shape[axis] ?? 0;
  if (size === 0) return undefined;
  const open = new Set<string>();
  const inputs = one.inputs.map((input, place) => {
    if (input === undefined || input.constant || input.tensor.shape[axis] !== size) return input;
    open.add(`x${place}`);
    return { ...input, tensor: withFewRows({ ...input.tensor, name: '' }, axis) };
  });
  const made = modelOf({ ...one, inputs });
  const { graph } = made.model;
  const withOpen = graph.input.map((info) => {
    const tensorType = info.type?.tensorType;
    if (!open.has(info.name) || tensorType?.shape === undefined) return info;
    const dim = tensorType.shape.dim.with(axis, { dimParam: 'rows' });
    return { ...info, type: { tensorType: { ...tensorType, shape: { dim } } } };
  });
  const program = made.inputs.map(({ name, shape }) => ({
    name,
    shape: open.has(name) ? shape.with(axis, many) : shape,
  }));
  return {
    model: { ...made.model, graph: { ...graph, input: withOpen } },
    inputs: made.inputs,
    program,
  };
}

test(`independent rows of ${drawn.size} operators, of seed ${seed}, have the same results in a larger batch`, async () => {
  const wrong: string[] = [];
  const apart = new Set<string>();
  const path = join(folder, 'case.onnx');
  for (const [place, operator] of [...drawn.keys()].entries()) {
    for (const [index, one] of casesOf(operator, seed, each).entries()) {
      const made = batched(one, (seed + place + index) % 2);
      const expected = made && (await referenceOf(made));
      if (made === undefined || expected === undefined) continue;
      await writeModel(made.model, path);
      const shapes = shapesOf(made.inputs);
      const found = await paddingOf(path, shapes, made.program, folder).catch((error: unknown) => {
        if (!(error instanceof ProgramError)) throw error;
      });
      if (found?.kind !== 'padded') continue;
      apart.add(operator);
      const { outputs } = await runPadded(found.padding, made.inputs, async (inputs) => ({
        outputs: (await referenceOf({ model: made.model, inputs })) ?? [],
      }));
      const what = disagreement(outputs, expected);
      if (what !== undefined) wrong.push(`${describeCase(one)}: ${what}`);
    }
  }
  expect(wrong).toEqual([]);
  // Rules that never find independent rows would pass too.
  expect(apart.size).toBeGreaterThan(50);
});

test(`independent rows of ${drawn.size} operators, of seed ${seed}, have the same results beside others and alone`, async () => {
  const wrong: string[] = [];
  const apart = new Set<string>();
  for (const operator of drawn.keys()) {
    for (const one of casesOf(operator, seed, each)) {
      const made = batched(one, 0);
      if (made === undefined || made.program.some(({ shape }) => shape[0] !== many)) continue;
      const { model, inputs } = made;
      const together = await referenceOf({ model, inputs });
      if (together === undefined || rowsByGraph(model, inputs).kind !== 'independent') continue;
      apart.add(operator);
      const counts = Array<number>(few).fill(1);
      const parts = inputs.map((input) => rowParts(input, counts));
      for (const row of counts.keys()) {
        const alone = await referenceOf({ model, inputs: parts.map((part) => part[row]!) });
        const joined = together.map((output) => rowParts(output, counts)[row]!);
        const what = alone === undefined ? 'a row does not run alone' : disagreement(joined, alone);
        if (what !== undefined) wrong.push(`${describeCase(one)}: ${what}`);
      }
    }
  }
  expect(wrong).toEqual([]);
  expect(apart.size).toBeGreaterThan(50);
});
