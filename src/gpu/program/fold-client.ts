/** Asks the folding process. It starts at the first request, is shared by all callers, and ends when idle. */
import { elementTypeOf, type ValueType } from '../../onnx/index.ts';
import { compiledModule, niceness, Server, startProcess } from '../../process/index.ts';
import { dataTypeOfOnnxRuntime } from '../../tensor/index.ts';
import { ProgramError } from './error.ts';
import type { FoldedOutput, FoldRequest, InferredOutput, ReferenceRequest } from './fold-protocol.ts';

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
  return new Server((events) => startProcess({ module, niceness: nicenessOf[role] }, events), {
    idleMsMax,
    errorOf: ({ failure, ended }) => {
      if (ended === undefined) return new ProgramError('folding', `ONNX Runtime refuses the graph: ${failure.message}`);
      const words = ended.words.trim();
      const message = `the process that folds graphs is gone: ${ended.reason}${words === '' ? '' : ` (${words})`}`;
      return new ProgramError('folding', message);
    },
  });
}

/**
 * @throws ProgramError 'folding' if ONNX Runtime refuses the graph or the process dies; the next request starts a new
 * process
 */
export async function fold(request: FoldRequest & { op: 'optimize' | 'run' }): Promise<readonly FoldedOutput[]> {
  return await ask<readonly FoldedOutput[]>(request);
}

/**
 * ONNX Runtime's type and shape of each output of a graph. A value of unknown rank has a shape without dimensions.
 * @throws as {@link fold}
 */
export async function inferTypes(modelPath: string): Promise<ReadonlyMap<string, ValueType>> {
  const types = new Map<string, ValueType>();
  for (const { name, type, shape } of await ask<readonly InferredOutput[]>({ op: 'types', modelPath })) {
    const datatype = dataTypeOfOnnxRuntime(type);
    if (datatype === undefined) continue;
    types.set(name, { elementType: elementTypeOf(datatype), shape: shape.map((size) => size ?? undefined) });
  }
  return types;
}

/** Runs a model on the CPU with the pools' optimisations, at low priority. @throws as {@link fold} */
export async function runReference(request: ReferenceRequest): Promise<readonly FoldedOutput[]> {
  return await ask<readonly FoldedOutput[]>(request, 'reference');
}
