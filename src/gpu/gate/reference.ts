/** ONNX Runtime's answer on the CPU, for a check. Called on the compiler's thread; a child process runs the model. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Graph, readModel, writeModel } from '../../onnx/index.ts';
import { temporaryFile } from '../../tools/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { runModel } from '../program/fold-client.ts';
import { givenValues, withGivenValues } from './jumps.ts';

/** @throws ProgramError 'folding' with ONNX Runtime's message if it does not run the model on these inputs */
export async function referenceOutputs(modelPath: string, inputs: readonly Tensor[]): Promise<readonly Tensor[]> {
  return await runModel(modelPath, inputs, true);
}

/**
 * The same where jumps read these values, with the values of ONNX Runtime's own as further outputs; see jumps.ts.
 * @throws ProgramError 'folding', OnnxError
 */
export async function openedReference(
  modelPath: string,
  inputs: readonly Tensor[],
  values: readonly Tensor[],
  cacheFolder: string,
): Promise<readonly Tensor[]> {
  const folder = join(cacheFolder, 'checks');
  await mkdir(folder, { recursive: true });
  await using opened = temporaryFile(folder, 'opened.onnx');
  const model = await readModel(modelPath);
  const graph = new Graph(model);
  const known = values.filter(({ name }) => graph.producer(name) !== undefined);
  await writeModel(withGivenValues(model, known), opened.path);
  return await runModel(opened.path, [...inputs, ...givenValues(known)], true);
}
