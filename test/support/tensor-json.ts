/** Tensors and their JSON, with all steps at once. */
import {
  nestedTensorFromJson,
  parseDocument,
  runSteps,
  tensorFromJson,
  TextParts,
  writeTensor,
  type DataType,
  type JsonText,
  type Tensor,
} from '../../src/tensor/index.ts';

/** The text of a tensor in a reply. */
export function tensorText(tensor: Tensor, nested = false): string {
  const into = new TextParts(Infinity, () => new Error('too long'));
  runSteps(writeTensor(into, tensor, nested));
  return Buffer.concat(into.parts().map((part) => Buffer.from(part))).toString();
}

/** Its elements as JSON.parse reads them: 64-bit integers lose what a double cannot hold. */
export function valuesToJson(tensor: Tensor): unknown[] {
  return JSON.parse(tensorText(tensor)) as unknown[];
}

/**
 * Reads JSON text, or a value as JSON.stringify writes it, into a tensor of that shape, or by default of its nesting's
 * shape.
 */
export function readTensor(datatype: DataType, shape: readonly number[] | undefined, data: unknown): Tensor {
  const bytes = Buffer.from(typeof data === 'string' ? data : JSON.stringify(data));
  const text = runSteps(parseDocument(bytes, 'tensor')) as JsonText;
  return runSteps(
    shape === undefined ? nestedTensorFromJson('x', datatype, text) : tensorFromJson('x', datatype, shape, text),
  );
}
