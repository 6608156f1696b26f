/** Tensors and the one wire codec: a JSON header and raw tensor bytes. */
export { dataTypes, elementBytes, isDataType, type DataType } from './datatype.ts';
export { TensorError } from './error.ts';
export { decodeMessage, encodeMessage, FrameDecoder, sliceTensors, type Message, type TensorHeader } from './frame.ts';
export { loadOnnxRuntime } from './load-onnx-runtime.ts';
export { dataTypeOfOnnxRuntime, onnxRuntimeType } from './onnx-runtime.ts';
export { nestedToJson, shapeOfNested, tensorFromJson, valuesToJson } from './json.ts';
export {
  arrayOf,
  byteCount,
  bytesElements,
  checkBytes,
  elementCount,
  elements,
  packBytes,
  tensorOf,
  type ArrayOf,
  type Tensor,
} from './tensor.ts';
