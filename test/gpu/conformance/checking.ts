/** Runs cases on a device and in ONNX Runtime, and reports differences. */
import type { Cuda } from '../../../src/gpu/driver/types.ts';
import { operators as everyOperator } from '../../../src/gpu/operators/index.ts';
import type { Operator } from '../../../src/gpu/operators/types.ts';
import { describeCase, type Case } from '../../support/operator-cases/case.ts';
import { difference } from './comparing.ts';
import { Recording } from './recording.ts';
import { referenceResults } from './reference.ts';
import { runRecording } from './running.ts';

/**
 * A sentence for each case with another result than ONNX Runtime's. All cases are one translation unit, compiled once.
 */
export async function differences(
  cuda: Cuda,
  cases: readonly Case[],
  operators: readonly Operator[] = everyOperator,
): Promise<string[]> {
  const types = new Set(operators.map(({ type }) => type));
  const expected = await referenceResults(cases);
  const recording = new Recording();
  for (const one of cases) {
    if (!types.has(one.operator)) throw new Error(`there is no operator '${one.operator}'`);
    recording.add(one, operators, expected.get(one)!);
  }
  const results = await runRecording(cuda, recording);
  const found: string[] = [];
  for (const recorded of recording.cases) {
    const actual = results.get(recorded)!;
    for (const [index, output] of recorded.outputs.entries()) {
      const wrong = difference(recorded.one, actual[index]!, output.expected);
      if (wrong !== undefined) found.push(`${describeCase(recorded.one)}: output ${index}: ${wrong}`);
    }
  }
  return found;
}
