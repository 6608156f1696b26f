/** Makes requests for functions from their metadata (Open Inference Protocol, `GET /v2/models/{name}`). */
import { arrayOf, isDataType, packBytes, type DataType } from '../tensor/index.ts';
import { Xoshiro } from './generate/random.ts';

/** An input as the metadata states it; -1 is a size that varies. */
export interface LiveInput {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
}

/** A request made once and sent often. */
export interface LiveRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** What is wrong with a host's reply or the requested function, in one sentence. */
export class LiveError extends Error {
  override readonly name = 'LiveError';
}

/** Reads the metadata of a model. Throws LiveError. */
export function parseLiveInputs(json: unknown, model: string): LiveInput[] {
  const inputs = typeof json === 'object' && json !== null ? (json as Record<string, unknown>)['inputs'] : undefined;
  if (!Array.isArray(inputs)) throw new LiveError(`the metadata of '${model}' lists no inputs`);
  return inputs.map((entry: unknown, index) => {
    const { name, datatype, shape } = (entry ?? {}) as Record<string, unknown>;
    if (typeof name !== 'string' || !isDataType(datatype)) {
      throw new LiveError(`input ${index} of '${model}' has no name, or a datatype that is not known`);
    }
    const sizes = Array.isArray(shape) ? (shape as unknown[]) : [NaN];
    if (!sizes.every((size) => Number.isInteger(size))) {
      throw new LiveError(`input '${name}' of '${model}' has no shape of whole numbers`);
    }
    return { name, datatype, shape: sizes as number[] };
  });
}

/**
 * An infer request with seeded values in binary form. A size that varies is 1 in the first dimension, which is the
 * batch, and `varyingSize` elsewhere. Integers are 0 or 1, which is valid for any embedding table and any mask.
 */
export function inferRequest(
  model: string,
  inputs: readonly LiveInput[],
  options: { readonly seed: number; readonly varyingSize: number },
): LiveRequest {
  const random = new Xoshiro(options.seed);
  const parts: Uint8Array[] = [];
  const described = inputs.map(({ name, datatype, shape: open }) => {
    const shape = open.map((size, index) => (size >= 0 ? size : index === 0 ? 1 : options.varyingSize));
    const count = shape.reduce((product, size) => product * size, 1);
    const bytes = valuesOf(datatype, count, random);
    parts.push(bytes);
    return { name, datatype, shape, parameters: { binary_data_size: bytes.byteLength } };
  });
  const header = Buffer.from(JSON.stringify({ inputs: described, parameters: { binary_data_output: true } }));
  return {
    path: `/v2/models/${encodeURIComponent(model)}/infer`,
    headers: {
      'content-type': 'application/octet-stream',
      'inference-header-content-length': String(header.byteLength),
    },
    body: Buffer.concat([header, ...parts]),
  };
}

function valuesOf(datatype: DataType, count: number, random: Xoshiro): Uint8Array {
  if (datatype === 'BYTES') return packBytes(Array.from({ length: count }, () => Buffer.from('turntable')));
  const values = new arrayOf[datatype](count);
  const drawn = (): number => {
    if (datatype === 'FP32' || datatype === 'FP64') return random.uniform();
    // Exponents of 1/8 to 1/2, any significand: values in [0.125, 1).
    if (datatype === 'FP16') return 0x3000 + random.below(0x0c00);
    return datatype === 'BF16' ? 0x3e00 + random.below(0x0180) : random.below(2);
  };
  for (let index = 0; index < count; index++) {
    if (values instanceof BigInt64Array || values instanceof BigUint64Array) values[index] = BigInt(drawn());
    else values[index] = drawn();
  }
  return new Uint8Array(values.buffer);
}
