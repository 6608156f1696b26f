/** A function's inputs, as far as its metadata leaves them open. */
import { bytesOfValues, inputShape, type InputShapes } from '../../gpu/index.ts';
import { elementBytes, packBytes, widened, type Tensor } from '../../tensor/index.ts';
import type { ModelMetadata } from '../types.ts';

/** Zeros in these shapes, with the given values; as text for string inputs. A program takes FP32 in place of BF16. */
export function emptyInputs(metadata: ModelMetadata, shapes: InputShapes): Tensor[] {
  return metadata.inputs.map(({ name, datatype }) => {
    const { shape, values } = inputShape(shapes, name)!;
    if (values !== undefined) return { name, datatype, shape, data: bytesOfValues(name, datatype, values) };
    const elements = shape.reduce((product, size) => product * size, 1);
    const data =
      datatype === 'BYTES'
        ? packBytes(Array.from({ length: elements }, () => '0'))
        : new Uint8Array(elements * elementBytes[datatype]);
    return widened({ name, datatype, shape, data });
  });
}
