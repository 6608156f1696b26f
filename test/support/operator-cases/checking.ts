/** Runs cases on the engine, all programs from one translation unit, and compares the results with ONNX Runtime's. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Cuda } from '../../../src/gpu/driver/types.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel, ProgramError, type Program } from '../../../src/gpu/program/index.ts';
import { baseOf } from '../../../src/gpu/program/compile-model.ts';
import { sizingInputs } from '../../../src/gpu/program/sizing-inputs.ts';
import { writeModel } from '../../../src/onnx/index.ts';
import { elements, type DataType, type Tensor } from '../../../src/tensor/index.ts';
import { describeCase, type Case } from './case.ts';
import { relativeError, runProgram } from '../run-program.ts';
import { modelOf, referenceOf } from './models.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';

export type Verdict =
  /** ONNX Runtime itself does not open or run it. */
  | { readonly kind: 'no case' }
  | { readonly kind: 'agrees' }
  | { readonly kind: 'uncovered'; readonly reason: string }
  | { readonly kind: 'wrong'; readonly what: string };

export interface Checked {
  readonly one: Case;
  readonly verdict: Verdict;
}

/** Relative to the largest magnitude of a tensor. */
export const tolerances: Partial<Record<DataType, number>> = { FP16: 4e-3, FP32: 1e-4, FP64: 1e-6 };

/**
 * ONNX Runtime's kernels between 8-bit tensors multiply by the scales in various orders: a half may round to either
 * side.
 */
const roundsEitherWay = /QLinear|QGemm/;

function isOneStepOff(found: Tensor, wanted: Tensor): boolean {
  const [own, other] = [elements(found), elements(wanted)].map((list) => Array.from(list as Iterable<number>, Number));
  return own!.every((value, place) => Math.abs(value - other![place]!) <= 1);
}

const said = ({ datatype, shape }: Tensor): string => `${datatype}[${shape.join(',')}]`;

export function disagreement(
  actual: readonly Tensor[],
  expected: readonly Tensor[],
  within: Partial<Record<DataType, number>> = tolerances,
  operator = '',
): string | undefined {
  if (actual.map(({ name }) => name).join() !== expected.map(({ name }) => name).join()) {
    return `outputs ${actual.map(({ name }) => name).join()}, not ${expected.map(({ name }) => name).join()}`;
  }
  for (const [place, wanted] of expected.entries()) {
    const found = actual[place]!;
    if (said(found) !== said(wanted)) return `${wanted.name} is ${said(found)}, not ${said(wanted)}`;
    const isByte = wanted.datatype === 'INT8' || wanted.datatype === 'UINT8';
    if (isByte && roundsEitherWay.test(operator) && isOneStepOff(found, wanted)) continue;
    const error = relativeError(found, wanted);
    const tolerance = within[wanted.datatype] ?? 0;
    if (!(error <= tolerance)) return `${wanted.name} ${said(wanted)} differs by ${error}`;
  }
  return undefined;
}

interface Ready {
  readonly place: number;
  readonly program: Program;
  readonly inputs: readonly Tensor[];
  readonly expected: readonly Tensor[];
}

/** One source for all programs: each keeps its kernels, with unique names. */
function merged(ready: readonly Ready[]): Ready[] {
  const parts: string[] = [];
  let shared = '';
  const renamed = ready.map(({ program, ...rest }, index): Ready => {
    const end = program.source.indexOf('\n\n');
    if (end > 0) {
      // Every source begins with the same helpers.
      shared = program.source.slice(0, end);
      parts.push(program.source.slice(end).replaceAll(/\bKERNEL void (\w+)/g, `KERNEL void p${index}_$1`));
    }
    const launches = program.launches.map((launch) =>
      launch.kind === 'kernel' ? Object.assign({}, launch, { kernel: `p${index}_${launch.kernel}` }) : launch,
    );
    return { ...rest, program: { ...program, launches } };
  });
  const source = [shared, ...parts].join('');
  return renamed.map(({ place, program, inputs, expected }) => {
    const whole = program.source === '' ? program : Object.assign({}, program, { source });
    return { place, program: whole, inputs, expected };
  });
}

/** @param folder for models and compiled programs */
export async function checkCases(cuda: Cuda, cases: readonly Case[], folder: string): Promise<Checked[]> {
  await mkdir(folder, { recursive: true });
  const verdicts: Verdict[] = [];
  const ready: Ready[] = [];
  for (const [place, one] of cases.entries()) {
    const made = modelOf(one);
    const expected = await referenceOf(made);
    if (expected === undefined) {
      verdicts.push({ kind: 'no case' });
      continue;
    }
    verdicts.push({ kind: 'agrees' });
    const path = join(folder, `case${place}.onnx`);
    await writeModel(made.model, path);
    try {
      const base = await baseOf(path, folder);
      const shapes = shapesOf(made.inputs, sizingInputs(base));
      const program = await compileModel(path, shapes, operators, { cacheFolder: folder });
      ready.push({ place, program, inputs: made.inputs, expected });
    } catch (error) {
      if (!(error instanceof ProgramError)) throw new Error(describeCase(one), { cause: error });
      const reason = error.obstacles[0]?.reason ?? error.message;
      verdicts[place] = { kind: 'uncovered', reason };
    }
  }
  for (const { place, program, inputs, expected } of merged(ready)) {
    let what: string | undefined;
    try {
      what = disagreement(await runProgram(cuda, program, inputs), expected, tolerances, cases[place]!.operator);
    } catch (error) {
      what = (error as Error).message;
    }
    if (what !== undefined) verdicts[place] = { kind: 'wrong', what };
  }
  return cases.map((one, place) => ({ one, verdict: verdicts[place]! }));
}
