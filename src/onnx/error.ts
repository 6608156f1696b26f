/**
 * What can be wrong with a model file.
 * - `not-found`: the model file does not exist, or is not a file
 * - `not-onnx`: the bytes are not an ONNX model (empty, garbage, another format)
 * - `truncated`: a length in the file points past its end
 * - `too-deep`, `too-large`: no runtime would load it; refused before it takes memory
 * - `bad-model`: the graph contradicts itself
 * - `bad-tensor`: a tensor's bytes contradict its dimensions
 * - `external-data`: external data is missing, too short, or outside the model's folder
 * - `unsupported`: valid ONNX with inputs or outputs that are not tensors
 */
export type OnnxErrorCode =
  | 'not-found'
  | 'not-onnx'
  | 'truncated'
  | 'too-deep'
  | 'too-large'
  | 'bad-model'
  | 'bad-tensor'
  | 'external-data'
  | 'unsupported';

/** A model that cannot be read, written or checked. The message is one sentence that names the problem. */
export class OnnxError extends Error {
  override readonly name = 'OnnxError';
  readonly code: OnnxErrorCode;

  constructor(code: OnnxErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
