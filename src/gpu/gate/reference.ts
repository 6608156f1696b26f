/** ONNX Runtime's answer on the CPU, for a check. Called on the compiler's thread; a child process runs the model. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Tensor } from '../../tensor/index.ts';
import { runModel } from '../program/fold-client.ts';

/** @throws ProgramError 'folding' with ONNX Runtime's message if it does not run the model on these inputs */
export async function referenceOutputs(
  modelPath: string,
  inputs: readonly Tensor[],
  cacheFolder: string,
): Promise<Tensor[]> {
  const folder = join(cacheFolder, 'checks');
  await mkdir(folder, { recursive: true });
  return await runModel(modelPath, inputs, folder, true);
}
