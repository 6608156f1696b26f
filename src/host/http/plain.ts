/**
 * The plain JSON of function calls without a handler: `{"input": nested}` to `{"output": nested}`, several inputs as
 * `{"inputs": {name: nested}}` to `{"outputs": {name: nested}}`. Datatypes come from the model, shapes from the nesting.
 */
import { elements, nestedToJson, shapeOfNested, tensorFromJson, TensorError } from '../../tensor/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { TensorSpec } from '../types.ts';
import { bf16ToNumber, fp16ToNumber, packHalves } from './half.ts';
import { isObject, parseJson } from './json-body.ts';
import { checkAgreement, checkComplete, checkShape, rowsOf, shapeText, unknownName } from './model-spec.ts';
import type { ModelSpec } from './model-spec.ts';

export interface PlainCall {
  readonly tensors: readonly Tensor[];
  /** How the reply is written: as the request was. */
  readonly form: 'single' | 'named';
  readonly rows: number;
}

/** @throws HostError 'bad-json' | 'bad-request', or TensorError naming the input and the shape that is expected */
export function decodePlain(body: Buffer, spec: ModelSpec): PlainCall {
  const request = parseJson(body, 'the body');
  const example = spec.inputs.length === 1 ? '{"input": ...}' : '{"inputs": {...}}';
  if (!isObject(request)) throw new HostError('bad-request', `the body is JSON, but not an object such as ${example}`);
  const { input, inputs } = request;
  if (input !== undefined) {
    if (inputs !== undefined) throw new HostError('bad-request', "the body has both 'input' and 'inputs'");
    const [only] = spec.inputs;
    if (only === undefined || spec.inputs.length !== 1) {
      const names = spec.inputs.map(({ name }) => `'${name}'`).join(', ');
      throw new HostError('bad-request', `the model has ${spec.inputs.length} inputs: name ${names} in 'inputs'`);
    }
    const tensors = [plainTensor(only, input)];
    return { tensors, form: 'single', rows: rowsOf(spec, tensors) };
  }
  if (!isObject(inputs)) throw new HostError('bad-request', `the body has no 'input' or 'inputs', as in ${example}`);
  const tensors = Object.entries(inputs).map(([name, data]) => {
    const named = spec.inputByName.get(name);
    if (named === undefined) throw unknownName('input', name, spec.inputs);
    return plainTensor(named, data);
  });
  checkComplete(spec, tensors);
  checkAgreement(spec, tensors);
  return { tensors, form: 'named', rows: rowsOf(spec, tensors) };
}

function plainTensor(spec: TensorSpec, data: unknown): Tensor {
  const shape = nestedShape(spec, data);
  if (shape.length === spec.shape.length - 1 && spec.shape[0] === -1) {
    throw new TensorError(
      `input '${spec.name}' has the shape [${shape.join(',')}] without a batch; wrap it in one more array for ${shapeText(spec)}`,
    );
  }
  checkShape(spec, shape);
  const { name, datatype } = spec;
  const list = Array.isArray(data) ? (data as unknown[]) : [data];
  try {
    if (datatype === 'FP16' || datatype === 'BF16') {
      // Read as numbers first, which checks the nesting, then narrowed.
      const wide = tensorFromJson(name, 'FP64', shape, list);
      return { name, datatype, shape, data: packHalves(name, datatype, Array.from(elements(wide), Number)) };
    }
    return tensorFromJson(name, datatype, shape, list);
  } catch (error) {
    if (error instanceof RangeError) {
      throw new TensorError(`input '${name}' is nested deeper than its shape ${shapeText(spec)}`);
    }
    throw error;
  }
}

function nestedShape(spec: TensorSpec, data: unknown): number[] {
  try {
    return shapeOfNested(data);
  } catch (error) {
    if (error instanceof TensorError) throw new TensorError(`input '${spec.name}' is ${error.message}`);
    throw error;
  }
}

/** The reply's JSON. */
export function encodePlain(form: PlainCall['form'], tensors: readonly Tensor[]): string {
  const [only] = tensors;
  if (form === 'single' && tensors.length === 1 && only !== undefined) {
    return JSON.stringify({ output: nested(only) });
  }
  return JSON.stringify({ outputs: Object.fromEntries(tensors.map((tensor) => [tensor.name, nested(tensor)])) });
}

function nested(tensor: Tensor): unknown {
  if (tensor.datatype !== 'FP16' && tensor.datatype !== 'BF16') return nestedToJson(tensor);
  const widen = tensor.datatype === 'FP16' ? fp16ToNumber : bf16ToNumber;
  const wide = Float64Array.from(elements(tensor) as Uint16Array, widen);
  return nestedToJson({ ...tensor, datatype: 'FP64', data: new Uint8Array(wide.buffer) });
}
