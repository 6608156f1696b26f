/** Tensors and their wire codec: a JSON header and raw tensor bytes. */
export { groupCalls, joinInputs, joinKeyOf, rowParts, splitOutputs, type BatchCall } from './batch.ts';
export { elementDifference, nearest, numbersOf, relativeDifference } from './difference.ts';
export { TensorError } from './error.ts';
export {
  decodeMessage,
  encodeMessage,
  reuse,
  FrameDecoder,
  lendOut,
  tensorHeaderText,
  type FrameAccount,
  type FrameMemory,
  type FrameRegion,
  type Message,
  type TensorHeader,
  owned,
} from './frame.ts';
export {
  dataTypeOfOnnxRuntime,
  fromOnnxRuntime,
  loadOnnxRuntime,
  NativeSession,
  narrowed,
  onnxRuntimeType,
  onnxRuntimeVersion,
  toOnnxRuntime,
  widened,
  type SessionOptions,
} from './onnx-runtime.ts';
export { OnnxRuntimeError, onnxRuntimeReason } from './onnx-runtime-reason.ts';
export { bf16ToNumber, fp16ToNumber, numberToBf16, numberToFp16, singlesToBf16, singlesToFp16 } from './half.ts';
export {
  JsonText,
  nestedTensorFromJson,
  parseDocument,
  tensorFromJson,
  type Grow,
  type JsonForm,
} from './json-read.ts';
export { TextParts, writeTensor } from './json-write.ts';
export { bytesToKeep, Lent } from './lent.ts';
export { free, freedBytesMin, keepTensors, SpentBuffers } from './spent.ts';
export { longWorkMs, runInSlices, runSteps, type Steps } from './steps.ts';
export {
  byteCount,
  bytesElements,
  bytesToSend,
  checkBytes,
  copyInto,
  dataBytes,
  dataParts,
  elementCount,
  elements,
  packBytes,
  rowsOf,
  scalarOf,
  tensorOf,
  type ArrayOf,
  type Tensor,
  arrayOf,
  bytesOfNumbers,
  dataTypes,
  elementBytes,
  isDataType,
  type DataType,
} from './tensor.ts';
