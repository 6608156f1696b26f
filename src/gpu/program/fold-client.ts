/**
 * The compiler's side of the folding process: started when it is needed, shared by all who need it, ended when idle.
 */
import { elementTypeOf, type ValueType } from '../../onnx/index.ts';
import { compiledModule, Server, startProcess } from '../../process/index.ts';
import { dataTypeOfOnnxRuntime } from '../../tensor/index.ts';
import { ProgramError } from './error.ts';
import type { FoldedOutput, FoldRequest, InferredOutput, ReferenceRequest } from './fold-protocol.ts';

const module = compiledModule('./fold-process.js', import.meta.url);

/** Long enough that the shapes of a function, compiled one after the other, share a process. */
const idleMsMax = 5_000;

/**
 * References run for as long as a model takes on a core: in a process of their own they hold up no compilation, and
 * calls go first.
 */
const nicenessOf = { fold: 0, reference: 10 } as const;
type Role = keyof typeof nicenessOf;
const processes = new Map<Role, Server<FoldRequest>>();

async function ask<Answer>(request: FoldRequest, role: Role = 'fold'): Promise<Answer> {
  let found = processes.get(role);
  if (found?.isAlive !== true) {
    found = start(nicenessOf[role]);
    processes.set(role, found);
  }
  return (await found.ask<Answer>(request)).answer;
}

function start(niceness: number): Server<FoldRequest> {
  return new Server((events) => startProcess({ module, niceness }, events), {
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
 * Has the folding process do something; rejects with {@link ProgramError} `folding` when ONNX Runtime refuses, or when
 * the process dies of it (the next request then gets a new one).
 */
export async function fold(request: FoldRequest & { op: 'optimize' | 'run' }): Promise<readonly FoldedOutput[]> {
  return await ask<readonly FoldedOutput[]>(request);
}

/**
 * What ONNX Runtime infers of each output of a graph: a value of unknown rank has a shape without dimensions. Rejects
 * as {@link fold}.
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

/** Runs a model on the CPU as the pools do, beside everything else. Rejects as {@link fold}. */
export async function runReference(request: ReferenceRequest): Promise<readonly FoldedOutput[]> {
  return await ask<readonly FoldedOutput[]>(request, 'reference');
}
