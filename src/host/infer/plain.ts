/**
 * The plain JSON of function calls without a handler: `{"input": nested}` to `{"output": nested}`, several inputs as
 * `{"inputs": {name: nested}}` to `{"outputs": {name: nested}}`. Datatypes come from the model, shapes from the
 * nesting.
 */
import { JsonText, nestedTensorFromJson, TensorError, writeTensor } from '../../tensor/index.ts';
import type { Grow, JsonForm, Steps, Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { TensorSpec } from '../types.ts';
import { isObject, notJson, parseTensorJson } from './json-body.ts';
import { checkComplete, checkShape, rowsOf, shapeText, shown, unknownName } from './model-spec.ts';
import type { ModelSpec } from './model-spec.ts';
import { replyText } from './answer.ts';

/** Where tensors are in a request. */
const requestForm: JsonForm = {
  members: new Map<string, JsonForm>([
    ['input', 'tensor'],
    ['inputs', { values: 'tensor' }],
  ]),
};

export interface PlainCall {
  readonly tensors: readonly Tensor[];
  /** The form of the request, which the reply has too. */
  readonly form: 'single' | 'named';
  readonly rows: number;
}

/**
 * @param grow is told the bytes of tensors before they are read; what it throws is thrown
 * @throws HostError 'bad-json' | 'bad-request', or TensorError naming the input and the expected shape
 */
export function* decodePlain(body: Buffer, spec: ModelSpec, grow?: Grow): Steps<PlainCall> {
  const request = yield* parseTensorJson(body, 'the body', requestForm);
  const example = spec.inputs.length === 1 ? '{"input": ...}' : '{"inputs": {...}}';
  if (!isObject(request)) throw new HostError('bad-request', `the body is JSON, but not an object such as ${example}`);
  const { input, inputs } = request;
  if (input instanceof JsonText) {
    if (inputs !== undefined) throw new HostError('bad-request', "the body has both 'input' and 'inputs'");
    const [only] = spec.inputs;
    if (only === undefined || spec.inputs.length !== 1) {
      const names = spec.inputs.map(({ name }) => `'${name}'`).join(', ');
      throw new HostError('bad-request', `the model has ${spec.inputs.length} inputs: name ${names} in 'inputs'`);
    }
    const tensors = [yield* plainTensor(only, input, grow)];
    return { tensors, form: 'single', rows: rowsOf(spec, tensors) };
  }
  if (inputs === undefined) throw new HostError('bad-request', withoutInputs(Object.keys(request), spec));
  if (!(inputs instanceof Map)) {
    const elsewhere = Array.isArray(inputs)
      ? '; an array, as in the Open Inference Protocol, goes to /v2/models/NAME/infer'
      : '';
    throw new HostError('bad-request', `the body's 'inputs' are no object such as ${formOf(spec)}${elsewhere}`);
  }
  const tensors: Tensor[] = [];
  for (const [name, data] of inputs as Map<string, JsonText>) {
    const named = spec.inputByName.get(name);
    if (named === undefined) throw unknownName('input', name, spec);
    tensors.push(yield* plainTensor(named, data, grow));
  }
  checkComplete(spec, tensors);
  return { tensors, form: 'named', rows: rowsOf(spec, tensors) };
}

/** The message for a body that has neither `input` nor `inputs`, with the form that the model takes. */
function withoutInputs(keys: readonly string[], spec: ModelSpec): string {
  const { inputs, inputByName } = spec;
  const [only] = inputs;
  const form = formOf(spec);
  const named = keys.filter((key) => inputByName.has(key));
  if (named.length > 0) {
    return `the body names ${named.map((name) => `'${name}'`).join(', ')} itself; inputs belong into 'inputs': ${form}`;
  }
  const [key] = keys;
  const has = key === undefined ? 'the body has' : `the body has '${shown(key)}', but`;
  const single = only === undefined || inputs.length > 1 ? form : `{"input": ...} for ${shapeText(only)}`;
  return `${has} no 'input' or 'inputs', as in ${single}`;
}

/** A model may have thousands of inputs. */
const inputsShown = 8;

/** The form of a body that names the inputs. */
function formOf({ inputs }: ModelSpec): string {
  const names = inputs.slice(0, inputsShown).map(({ name }) => `${JSON.stringify(shown(name))}: ...`);
  return `{"inputs": {${names.join(', ')}${inputs.length > inputsShown ? ', ...' : ''}}}`;
}

function* plainTensor(spec: TensorSpec, data: JsonText, grow: Grow | undefined): Steps<Tensor> {
  let tensor: Tensor;
  try {
    tensor = yield* nestedTensorFromJson(spec.name, spec.datatype, data, grow);
  } catch (error) {
    throw notJson('the body', error);
  }
  const shape = shapeOf(spec, tensor);
  if (shape.length === spec.shape.length - 1 && spec.shape[0] === -1) {
    throw new TensorError(
      `input '${spec.name}' has the shape [${shape.join(',')}] without a batch; wrap it in one more array for ${shapeText(spec)}`,
    );
  }
  return { ...tensor, shape: checkShape(spec, shape) };
}

/** The nesting ends at an empty array. The sizes after it are the model's, or 0 if they vary. */
function shapeOf(spec: TensorSpec, { shape }: Tensor): readonly number[] {
  if (shape.at(-1) !== 0) return shape;
  return [...shape, ...spec.shape.slice(shape.length).map((size) => Math.max(0, size))];
}

export function* encodePlain(
  form: PlainCall['form'],
  tensors: readonly Tensor[],
  bytesMax = Infinity,
  grow?: Grow,
): Steps<(string | Uint8Array)[]> {
  const json = replyText(bytesMax, grow);
  const [only] = tensors;
  if (form === 'single' && tensors.length === 1 && only !== undefined) {
    json.add('{"output":');
    yield* writeTensor(json, only, true);
  } else {
    json.add('{"outputs":{');
    for (const [index, tensor] of tensors.entries()) {
      json.add(`${index === 0 ? '' : ','}${JSON.stringify(tensor.name)}:`);
      yield* writeTensor(json, tensor, true);
    }
    json.add('}');
  }
  json.add('}\n');
  return json.parts();
}
