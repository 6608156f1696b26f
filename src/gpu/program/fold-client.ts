/** Asks the folding process. It starts at the first request, is shared by all callers, and ends when idle. */
import { elementTypeOf, type ValueType } from '../../onnx/index.ts';
import { compiledModule, GoneError, niceness, OnDemand, type WithTensors } from '../../process/index.ts';
import { onnxRuntimeReason, type Tensor } from '../../tensor/index.ts';
import { given } from '../../tools/index.ts';
import { ProgramError } from './error.ts';

export type TensorHead = Omit<Tensor, 'data'>;

export interface InferredOutput extends Pick<Tensor, 'name' | 'datatype'> {
  /** Null: a size that is known only after a run. */
  readonly shape: readonly (number | null)[];
}

interface OfModel {
  readonly modelPath: string;
}

export interface FoldApi {
  /** The type and shape of every output of a graph, without a run. */
  types(order: OfModel): readonly InferredOutput[];
  /** Folds constants and shape arithmetic, and saves the graph. */
  optimize(order: OfModel & { readonly optimizedPath: string }): void;
  /** Runs on zeros. */
  shapes(order: OfModel & { readonly inputs: readonly TensorHead[] }): readonly TensorHead[];
  /** `asPools`: in its served form and with ONNX Runtime's default optimisations, as the CPU pools run models, or with none. */
  run(order: OfModel & { readonly asPools: boolean }, inputs: readonly Tensor[]): WithTensors<null>;
}

/** So that shapes of a function that are compiled one after the other share a process. */
const idleMsMax = 5_000;

const processOf = (priority?: number): OnDemand<FoldApi> =>
  new OnDemand({
    what: 'the process that folds graphs',
    inOrder: true,
    idleMsMax,
    errorOf,
    process: {
      module: compiledModule('./fold-process.js', import.meta.url),
      hugePages: true,
      ...given({ niceness: priority }),
    },
  });

function errorOf(error: Error): ProgramError {
  const { message } = error;
  if (!(error instanceof GoneError))
    return new ProgramError('folding', `ONNX Runtime refuses the graph: ${onnxRuntimeReason(message)}`);
  const words = error.end.words.trim();
  return new ProgramError('folding', words === '' ? message : `${message} (${words})`);
}

const folding = processOf();
/**
 * A reference run takes as long as the model on a core. It has its own process, so that compilations need not wait,
 * with a lower priority than calls.
 */
const references = processOf(niceness.background);

/**
 * Folds constants and shape arithmetic of a graph, and saves it.
 * @throws ProgramError 'folding' if ONNX Runtime refuses the graph or the process dies; the next request starts a new
 * process
 */
export async function fold(modelPath: string, optimizedPath: string): Promise<void> {
  await folding.running.call('optimize', { modelPath, optimizedPath });
}

/**
 * ONNX Runtime's type and shape of each output of a graph. A value of unknown rank has a shape without dimensions.
 * @throws as {@link fold}
 */
export async function inferTypes(modelPath: string): Promise<ReadonlyMap<string, ValueType>> {
  const types = await folding.running.call('types', { modelPath });
  return new Map(
    types.map(({ name, datatype, shape }) => [
      name,
      { elementType: elementTypeOf(datatype), shape: shape.map((size) => size ?? undefined) },
    ]),
  );
}

/** Datatypes and shapes of a model's outputs, from a run on zeros. @throws as {@link fold} */
export async function runOnZeros(modelPath: string, inputs: readonly TensorHead[]): Promise<readonly TensorHead[]> {
  return await folding.running.call('shapes', { modelPath, inputs });
}

/**
 * Runs a model on the CPU.
 * @param asPools with the pools' optimisations and at low priority
 * @throws as {@link fold}
 */
export async function runModel(
  modelPath: string,
  inputs: readonly Tensor[],
  asPools: boolean,
): Promise<readonly Tensor[]> {
  const { running } = asPools ? references : folding;
  return (await running.exchange('run', { modelPath, asPools }, { tensors: inputs })).tensors;
}
