/** Whose fault a failed run is: what an input's shapes and values cause is told apart from the model and the machine. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { unfitInputs, unfitModel, unfitRuns, type UnfitRun } from '../../../test/support/unfit-inputs.ts';
import { ElementType, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { NativeSession, OnnxRuntimeError, TensorError } from '../../tensor/index.ts';
import { CpuError } from '../types.ts';
import { failure } from './failure.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-failure-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function failed(act: () => unknown): unknown {
  try {
    act();
  } catch (error) {
    return error;
  }
  return undefined;
}

async function errorOf(unfit: UnfitRun): Promise<unknown> {
  const path = join(folder, 'unfit.onnx');
  await writeModel(unfitModel(unfit), path);
  const session = new NativeSession(path, { executionProviders: ['cpu'], intraOpNumThreads: 1, logSeverityLevel: 4 });
  const error = failed(() => session.runTensors(unfitInputs(unfit)));
  session.release();
  return error;
}

test.each(unfitRuns.map((unfit) => [unfit.op, unfit.what, unfit] as const))(
  '%s: %s is an error of the input, in the first call too',
  async (op, _what, unfit) => {
    const error = await errorOf(unfit);
    expect(error).toBeInstanceOf(OnnxRuntimeError);
    const { code, message } = failure(error, { hasAnswered: false, hasInputs: true });
    expect(code).toBe('inference-input');
    expect(message).toMatch(new RegExp(`^node '/${op}' \\(${op}\\): \\w*.`));
    expect(message).not.toMatch(/\.(cc|h):\d|::|Status|Name:/);
  },
);

test('what a run without inputs fails with is an error of the model', async () => {
  const graph = new GraphBuilder('always');
  // Random numbers are no constants, which ONNX Runtime would compute, and fail, while it opens the model.
  const half = graph.node('RandomUniform', [], { high: { float: 0.5 }, shape: [1] });
  const zero = graph.node('Cast', [half], { to: ElementType.INT64 });
  graph.output(graph.node('Div', [graph.constant({ ints: [1] }), zero]), ElementType.INT64, ['n'], 'y');
  const path = join(folder, 'always.onnx');
  await writeModel(graph.build(), path);
  const session = new NativeSession(path, { executionProviders: ['cpu'], intraOpNumThreads: 1, logSeverityLevel: 4 });
  const error = failed(() => session.runTensors([]));
  session.release();
  expect(failure(error, { hasAnswered: false, hasInputs: false })).toMatchObject({
    code: 'inference-failed',
    message: "node '/Div' (Div): Integer division by zero",
  });
});

describe('a case that an operator lacks', () => {
  const lacking = new OnnxRuntimeError(
    "Non-zero status code returned while running X node. Name:'x' Status Message: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : 5-D",
  );
  test.each([
    [false, 'inference-failed'],
    [true, 'inference-input'],
  ])('of a session that has answered other calls (%s) is %s', (hasAnswered, code) => {
    expect(failure(lacking, { hasAnswered, hasInputs: true })).toMatchObject({ code, message: "node 'x' (X): 5-D" });
  });
});

test.each<[string, unknown, object]>([
  ['a tensor that cannot be read', new TensorError('no'), { code: 'inference-input', message: 'no' }],
  ['an error with a status', new CpuError('handler-input', 'no', 418), { code: 'handler-input', status: 418 }],
  ['any other error', new TypeError('x is\nnot a function'), { code: 'inference-failed', message: 'x is not a function' }],
])('%s is told as it is', (_what, error, told) => expect(failure(error)).toMatchObject(told)); // prettier-ignore
