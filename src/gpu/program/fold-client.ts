/** Asks the folding process. It starts at the first request, is shared by all callers, and ends when idle. */
import { readFile, writeFile } from 'node:fs/promises';
import { temporaryFile } from '../../tools/index.ts';
import { elementTypeOf, type ValueType } from '../../onnx/index.ts';
import { compiledModule, niceness, Server, startProcess } from '../../process/index.ts';
import { byteCount, onnxRuntimeReason, type Tensor } from '../../tensor/index.ts';
import { ProgramError } from './error.ts';
import type { FoldRequest, InferredOutput, TensorHead } from './fold-protocol.ts';

const module = compiledModule('./fold-process.js', import.meta.url);

/** So that shapes of a function that are compiled one after the other share a process. */
const idleMsMax = 5_000;

/**
 * A reference run takes as long as the model on a core. It has its own process, so that compilations need not wait,
 * with a lower priority than calls.
 */
const nicenessOf = { fold: 0, reference: niceness.background };
type Role = keyof typeof nicenessOf;
const processes = new Map<Role, Server<FoldRequest>>();

async function ask<Answer>(request: FoldRequest, role: Role = 'fold'): Promise<Answer> {
  let found = processes.get(role);
  if (found?.isAlive !== true) {
    found = start(role);
    processes.set(role, found);
  }
  return (await found.ask<Answer>(request)).answer;
}

function start(role: Role): Server<FoldRequest> {
  return new Server((events) => startProcess({ module, niceness: nicenessOf[role], hugePages: true }, events), {
    idleMsMax,
    errorOf: ({ failure, ended }) => {
      if (ended === undefined)
        return new ProgramError('folding', `ONNX Runtime refuses the graph: ${onnxRuntimeReason(failure.message)}`);
      const words = ended.words.trim();
      const message = `the process that folds graphs is gone: ${ended.reason}${words === '' ? '' : ` (${words})`}`;
      return new ProgramError('folding', message);
    },
  });
}

/**
 * Folds constants and shape arithmetic of a graph, and saves it.
 * @throws ProgramError 'folding' if ONNX Runtime refuses the graph or the process dies; the next request starts a new
 * process
 */
export async function fold(modelPath: string, optimizedPath: string): Promise<void> {
  await ask({ op: 'optimize', modelPath, optimizedPath });
}

/**
 * ONNX Runtime's type and shape of each output of a graph. A value of unknown rank has a shape without dimensions.
 * @throws as {@link fold}
 */
export async function inferTypes(modelPath: string): Promise<ReadonlyMap<string, ValueType>> {
  const types = await ask<readonly InferredOutput[]>({ op: 'types', modelPath });
  return new Map(
    types.map(({ name, datatype, shape }) => [
      name,
      { elementType: elementTypeOf(datatype), shape: shape.map((size) => size ?? undefined) },
    ]),
  );
}

/** Datatypes and shapes of a model's outputs, from a run on zeros. @throws as {@link fold} */
export async function runOnZeros(
  modelPath: string,
  inputs: readonly Omit<Tensor, 'data'>[],
): Promise<readonly Omit<Tensor, 'data'>[]> {
  const heads = inputs.map((input) => ({ ...input, bytes: byteCount(input.datatype, input.shape) ?? 0 }));
  return await ask<readonly TensorHead[]>({ op: 'run', modelPath, inputs: heads, asPools: false });
}

/**
 * Runs a model on the CPU.
 * @param folder for temporary files
 * @param asPools with the pools' optimisations and at low priority
 * @throws as {@link fold}
 */
export async function runModel(
  modelPath: string,
  inputs: readonly Tensor[],
  folder: string,
  asPools: boolean,
): Promise<Tensor[]> {
  await using inputFile = temporaryFile(folder, 'inputs.bin');
  await using outputFile = temporaryFile(folder, 'outputs.bin');
  const { path: inputPath } = inputFile;
  const { path: outputPath } = outputFile;
  await writeFile(inputPath, Buffer.concat(inputs.map(({ data }) => data)));
  const heads = inputs.map(({ data, ...input }) => ({ ...input, bytes: data.byteLength }));
  const request = { op: 'run', modelPath, inputs: heads, inputPath, outputPath, asPools } as const;
  const outputs = await ask<readonly TensorHead[]>(request, asPools ? 'reference' : 'fold');
  const all = new Uint8Array(await readFile(outputPath));
  let at = 0;
  return outputs.map(({ bytes, ...output }) => Object.assign(output, { data: all.slice(at, (at += bytes)) }));
}
