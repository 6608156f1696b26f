/** Tensor data that contradicts its description, or a message that is not in the wire form. */
export class TensorError extends Error {
  readonly code = 'bad-tensor';
  override readonly name = 'TensorError';
}
