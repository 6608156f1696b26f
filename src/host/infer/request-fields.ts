/** The fields of an infer request besides its tensors' data; the same over HTTP and gRPC. */
import { TensorError, type DataType } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { TensorSpec } from '../types.ts';
import { isObject } from './json-body.ts';
import { shown, unknownName, type ModelSpec } from './model-spec.ts';

export interface RequestFields {
  readonly id: string | undefined;
  readonly timeoutMs: number | undefined;
  readonly priority: number | undefined;
  readonly binaryByDefault: boolean;
}

export function readRequestFields(request: Record<string, unknown>): RequestFields {
  const { id, parameters } = request;
  if (id !== undefined && typeof id !== 'string') throw new HostError('bad-request', "'id' is not a string");
  if (parameters === undefined) return { id, timeoutMs: undefined, priority: undefined, binaryByDefault: false };
  if (!isObject(parameters)) throw new HostError('bad-request', "'parameters' is not an object");
  for (const key of ['sequence_id', 'sequence_start', 'sequence_end']) {
    if (parameters[key] !== undefined && parameters[key] !== 0 && parameters[key] !== false) {
      throw new HostError(
        'bad-request',
        `the parameter '${key}' is not supported: functions keep no state between calls`,
      );
    }
  }
  const timeoutUs = wholeParameter(parameters, 'timeout');
  return {
    id,
    timeoutMs: timeoutUs === 0 || timeoutUs === undefined ? undefined : timeoutUs / 1000,
    // Triton's 0 means the default.
    priority: wholeParameter(parameters, 'priority') || undefined,
    binaryByDefault: booleanParameter(parameters, 'binary_data_output', 'the request') ?? false,
  };
}

function wholeParameter(parameters: Record<string, unknown>, key: string): number | undefined {
  const value = parameters[key];
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new HostError('bad-request', `the parameter '${key}' is not a whole number of at least 0`);
  }
  return value;
}

function booleanParameter(parameters: Record<string, unknown>, key: string, owner: string): boolean | undefined {
  const value = parameters[key];
  if (value === undefined || typeof value === 'boolean') return value;
  throw new HostError('bad-request', `the parameter '${key}' of ${owner} is not true or false`);
}

export function parametersOf(entry: Record<string, unknown>, owner: string): Record<string, unknown> | undefined {
  const { parameters } = entry;
  if (parameters === undefined) return undefined;
  if (!isObject(parameters)) throw new HostError('bad-request', `'parameters' of ${owner} is not an object`);
  if (parameters['shared_memory_region'] !== undefined) {
    throw new HostError('bad-request', `${owner} asks for shared memory, which this host does not offer`);
  }
  return parameters;
}

export function refuseSurplus(inputs: readonly unknown[], spec: ModelSpec): never {
  const seen = new Set<string>();
  for (const entry of inputs) {
    const { name } = describeInput(entry, spec);
    if (seen.has(name)) throw new TensorError(`input '${name}' is given twice`);
    seen.add(name);
  }
  throw new TensorError(`the request has ${inputs.length} inputs, but the model takes ${spec.inputs.length}`);
}

export function describeInput(
  entry: unknown,
  spec: ModelSpec,
): { name: string; datatype: DataType; input: TensorSpec; fields: Record<string, unknown> } {
  if (!isObject(entry)) throw new HostError('bad-request', "an entry of 'inputs' is not an object");
  const { name, datatype } = entry;
  if (typeof name !== 'string') throw new HostError('bad-request', "an entry of 'inputs' has no 'name'");
  const input = spec.inputByName.get(name);
  if (input === undefined) throw unknownName('input', name, spec.inputs);
  if (datatype !== input.datatype) {
    const given = typeof datatype === 'string' ? `the datatype '${shown(datatype)}'` : 'no datatype';
    throw new TensorError(`input '${name}' has ${given}, but the model takes ${input.datatype}`);
  }
  return { name, datatype: input.datatype, input, fields: entry };
}

export function readOutputs(
  outputs: unknown,
  spec: ModelSpec,
): {
  names: readonly string[] | undefined;
  byName: ReadonlyMap<string, boolean> | undefined;
  classes: ReadonlyMap<string, number> | undefined;
} {
  if (outputs === undefined) return { names: undefined, byName: undefined, classes: undefined };
  if (!Array.isArray(outputs)) throw new HostError('bad-request', "'outputs' is not an array");
  const byName = new Map<string, boolean>();
  const classes = new Map<string, number>();
  const names = new Set<string>();
  for (const entry of outputs as unknown[]) {
    if (!isObject(entry)) throw new HostError('bad-request', "an entry of 'outputs' is not an object");
    const { name } = entry;
    if (typeof name !== 'string') throw new HostError('bad-request', "an entry of 'outputs' has no 'name'");
    if (!spec.outputByName.has(name)) throw unknownName('output', name, spec.outputs);
    if (names.has(name)) throw new TensorError(`output '${name}' is asked for twice`);
    names.add(name);
    const parameters = parametersOf(entry, `output '${name}'`);
    if (parameters === undefined) continue;
    const classification = wholeParameter(parameters, 'classification');
    if (classification !== undefined && classification > 0) classes.set(name, classification);
    const binary = booleanParameter(parameters, 'binary_data', `output '${name}'`);
    if (binary !== undefined) byName.set(name, binary);
  }
  // An empty list asks for every output, as in Triton.
  return {
    names: names.size === 0 ? undefined : [...names],
    byName: byName.size === 0 ? undefined : byName,
    classes: classes.size === 0 ? undefined : classes,
  };
}
