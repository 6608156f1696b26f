/** Runs a decoded inference as an invocation, for every protocol. */
import type { PoolInput } from '../../cpu/index.ts';
import { TensorError, type Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { Invocation, InvocationOptions, Invoker } from '../invoke.ts';
import type { FunctionVersion } from '../types.ts';
import { classify } from './classification.ts';
import { modelSpec, type ModelSpec } from './model-spec.ts';
import type { InferCall } from './oip.ts';

export interface InferResult {
  readonly invocation: Invocation;
  /** The requested outputs in that order, or all outputs in the model's order. */
  readonly outputs: readonly Tensor[];
}

/** @throws HostError, at once or as a rejection */
export function runInfer(
  invoker: Invoker,
  version: FunctionVersion,
  call: Pick<InferCall, 'tensors' | 'outputs' | 'timeoutMs' | 'priority' | 'rows' | 'classes'>,
  options: Pick<InvocationOptions, 'arrivalMs' | 'sloMs' | 'signal' | 'chain'>,
): Promise<InferResult> {
  const { tensors, outputs, timeoutMs, priority, rows } = call;
  const { rowsMax } = version.settings;
  if (rowsMax !== undefined && rows > rowsMax) {
    throw new TensorError(
      `the request has a batch of ${rows}, but function '${version.name}' takes at most ${rowsMax}`,
    );
  }
  const input: PoolInput = outputs === undefined ? { kind: 'tensors', tensors } : { kind: 'tensors', tensors, outputs };
  const deadlineMs = timeoutMs === undefined ? undefined : options.arrivalMs + timeoutMs;
  // Written out: V8 takes a microsecond to copy an object by spread.
  const { arrivalMs, sloMs, signal, chain } = options;
  const asked = { arrivalMs, sloMs, deadlineMs, priority, signal, rows, chain };
  return invoker.invoke(version, input, asked).then((invocation) => inferred(version, call, invocation));
}

function inferred(
  version: FunctionVersion,
  { outputs, classes }: Pick<InferCall, 'outputs' | 'classes'>,
  invocation: Invocation,
): InferResult {
  const { output } = invocation;
  if (output.kind !== 'tensors') throw new HostError('internal', 'the pool answered tensors with a response');
  const spec = specOf(version);
  const ordered = inOrder(outputs ?? spec.outputNames, output.tensors);
  if (classes === undefined) return { invocation, outputs: ordered };
  const { batched } = spec;
  const classified = ordered.map((tensor) => {
    const count = classes.get(tensor.name);
    return count === undefined ? tensor : classify(tensor, count, { batched, labels: version.settings.labels });
  });
  return { invocation, outputs: classified };
}

function inOrder(names: readonly string[], tensors: readonly Tensor[]): readonly Tensor[] {
  if (names.length === tensors.length && names.every((name, index) => tensors[index]?.name === name)) return tensors;
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  return names.map((name) => {
    const tensor = byName.get(name);
    if (tensor === undefined) throw new HostError('internal', `the instance did not return the output '${name}'`);
    return tensor;
  });
}

/** @throws HostError 'not-ready' */
export function specOf(version: FunctionVersion): ModelSpec {
  if (version.metadata === undefined) {
    throw new HostError(
      'not-ready',
      `function '${version.name}' version ${version.version} has not been validated yet`,
    );
  }
  return modelSpec(version.metadata);
}
