/**
 * Functions that invoke functions: `context.invoke` and `context.call` of a handler. Each call carries the names of the
 * functions that wait for its answer, so that none waits for itself.
 */
import type { InvokeOthers, OtherAnswer, OtherCall } from '../../cpu/index.ts';
import { TensorError, type Tensor } from '../../tensor/index.ts';
import { HostError, toHostError } from '../errors.ts';
import { runInfer } from './infer.ts';
import { checkComplete, checkShape, rowsOf, specOf, unknownName, type ModelSpec } from '../infer/model-spec.ts';
import type { InvocationOptions, Invoker } from './invoke.ts';
import type { FunctionVersion, Registry } from '../types.ts';

/** Longest chain of functions that wait for each other. */
const depthMax = 8;
/** Longest name in an error. */
const nameLengthMax = 80;
/** A call without a place after this long is given up: its caller holds memory that the call may be waiting for. */
const waitMsMax = 60_000;

/** The interface for the handler of a version, in an invocation with these options. */
export function otherFunctions(invoker: Invoker, registry: Pick<Registry, 'find'>) {
  const invoke = async (
    caller: FunctionVersion,
    options: InvocationOptions,
    { name, input }: OtherCall,
  ): Promise<OtherAnswer> => {
    const chain = [...(options.chain ?? []), caller.name];
    const found = registry.find(name);
    if (found === undefined)
      throw new HostError('unknown-function', `no function '${name.slice(0, nameLengthMax)}' is registered`);
    checkChain(chain, { name, input });
    const nowMs = performance.now();
    const { signal, priority, deadlineMs = Infinity } = options;
    const version = await invoker.ready(found, signal);
    const left = Math.max(0, (options.sloMs ?? caller.settings.sloMs) - (nowMs - options.arrivalMs));
    const waitMs = Math.min(waitMsMax, deadlineMs - nowMs);
    const mine = { arrivalMs: nowMs, sloMs: left, signal, chain };
    if (input.kind === 'tensors') {
      const spec = specOf(version);
      checkInputs(spec, input.tensors);
      const rows = rowsOf(spec, input.tensors);
      const asked = {
        tensors: input.tensors,
        outputs: undefined,
        classes: undefined,
        timeoutMs: waitMs,
        priority,
        rows,
      };
      return { kind: 'tensors', tensors: (await runInfer(invoker, version, asked, mine)).outputs };
    }
    if (version.handlerPath === undefined) throw noHandler();
    return (await invoker.invoke(version, input, { ...mine, deadlineMs: nowMs + waitMs, priority, rows: 1 })).result
      .output;
  };
  return (caller: FunctionVersion, options: InvocationOptions): InvokeOthers =>
    async (calls) =>
      await Promise.all(
        calls.map((call) => invoke(caller, options, call).catch((error) => otherError(caller.name, call.name, error))),
      );
}

/** The error that a handler gets when another function did not answer. */
export function otherError(callerName: string, name: string, error: unknown): OtherAnswer {
  const { code, status, message } = toHostError(error);
  // An input that the other handler rejects is the client's error; any other mistake in the call is this handler's.
  const isOwnMistake = status < 500 && code !== 'handler-input';
  const named = `function '${name.slice(0, nameLengthMax)}', invoked by '${callerName}': ${message}`;
  return { kind: 'error', code, status: isOwnMistake ? 500 : status, message: named };
}

/**
 * Whether the functions that wait for a call may make it.
 *
 * @throws HostError
 */
export function checkChain(chain: readonly string[], { name, input }: OtherCall): void {
  const way = [...chain, name].join(' > ');
  // A model invokes nobody.
  if (input.kind === 'request' && chain.includes(name)) {
    throw new HostError('handler-failed', `its own answer waits for this call: ${way}`);
  }
  if (chain.length >= depthMax) {
    throw new HostError('handler-failed', `at most ${depthMax} functions may wait for each other: ${way}`);
  }
}

/** For a request to a function that has only a model. */
export function noHandler(): HostError {
  return new HostError('bad-request', 'it has no handler to answer a request: invoke it with tensors');
}

/** @throws TensorError */
export function checkInputs(spec: ModelSpec, tensors: readonly Tensor[]): void {
  const names = new Set<string>();
  for (const { name, datatype, shape } of tensors) {
    const input = spec.inputByName.get(name);
    if (input === undefined) throw unknownName('input', name, spec);
    if (names.has(name)) throw new TensorError(`input '${name}' is given twice`);
    names.add(name);
    if (datatype !== input.datatype) {
      throw new TensorError(`input '${name}' is ${datatype}, but the model takes ${input.datatype}`);
    }
    checkShape(input, shape);
  }
  checkComplete(spec, tensors);
}
