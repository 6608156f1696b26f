/** ONNX Runtime's answer on the CPU, for a check. Called on the compiler's thread; a child process runs the model. */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryPath } from '../../tools/index.ts';
import { dataTypeOfOnnxRuntime, type Tensor } from '../../tensor/index.ts';
import { ProgramError } from '../program/error.ts';
import { runReference } from '../program/fold-client.ts';

/** @throws ProgramError 'folding' with ONNX Runtime's message if it does not run the model on these inputs */
export async function referenceOutputs(
  modelPath: string,
  inputs: readonly Tensor[],
  cacheFolder: string,
): Promise<Tensor[]> {
  const folder = join(cacheFolder, 'checks');
  await mkdir(folder, { recursive: true });
  const inputPath = temporaryPath(folder, 'inputs.bin');
  const outputPath = temporaryPath(folder, 'outputs.bin');
  try {
    await writeFile(inputPath, Buffer.concat(inputs.map(({ data }) => data)));
    const outputs = await runReference({
      op: 'reference',
      modelPath,
      inputPath,
      inputs: inputs.map(({ name, datatype, shape, data }) => ({ name, datatype, shape, bytes: data.byteLength })),
      outputPath,
    });
    const all = new Uint8Array(await readFile(outputPath));
    let at = 0;
    return outputs.map(({ name, type, shape, bytes }) => {
      const datatype = dataTypeOfOnnxRuntime(type);
      if (datatype === undefined) throw new ProgramError('folding', `the output '${name}' has the type ${type}`);
      return { name, datatype, shape, data: all.slice(at, (at += bytes)) };
    });
  } finally {
    await Promise.all([inputPath, outputPath].map((path) => rm(path, { force: true })));
  }
}
