import { describe, expect, test } from 'vitest';
import { onnxRuntimeReason } from './onnx-runtime-reason.ts';

const running = (opType: string, rest: string, name = `/${opType}`): string =>
  `Non-zero status code returned while running ${opType} node. Name:'${name}' Status Message: ${rest}`;
const core = '/onnxruntime_src/onnxruntime/core';

/** As ONNX Runtime 1.30 wrote them, one of each form. */
const messages: readonly [form: string, message: string, reason: string][] = [
  ['a sentence', running('Slice', "'step' value cannot be 0"), "node '/Slice' (Slice): 'step' value cannot be 0"],
  [
    'a file and the name of a function',
    running('Div', 'element_wise_ops.cc:692 Compute Integer division by zero'),
    "node '/Div' (Div): Integer division by zero",
  ],
  [
    'a file and a call operator',
    running('Mod', 'element_wise_ops.cc:2256 operator() Integer modulo by zero'),
    "node '/Mod' (Mod): Integer modulo by zero",
  ],
  [
    'a signature and a condition',
    running(
      'Squeeze',
      `${core}/providers/cpu/tensor/squeeze.h:53 static onnxruntime::TensorShapeVector onnxruntime::SqueezeBase::` +
        'ComputeOutputShape(const onnxruntime::TensorShape&, const onnxruntime::TensorShapeVector&) ' +
        'input_shape[i] == 1 was false. Dimension of input 0 must be 1 instead of 2. shape={2,2}\n',
    ),
    "node '/Squeeze' (Squeeze): Dimension of input 0 must be 1 instead of 2. shape={2,2}",
  ],
  [
    'a condition that calls a function',
    running(
      'Unsqueeze',
      `${core}/providers/common.h:31 int64_t onnxruntime::HandleNegativeAxis(int64_t, int64_t) ` +
        'IsAxisInRange(axis, tensor_rank) was false. axis 7 is not in valid range [-3,2]\n',
    ),
    "node '/Unsqueeze' (Unsqueeze): axis 7 is not in valid range [-3,2]",
  ],
  [
    'a method that is const',
    running(
      'MaxPool',
      `${core}/providers/cpu/nn/pool_attributes.h:236 int64_t onnxruntime::PoolAttributes::ComputeOutputSize(` +
        'int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) const out_size >= 0 was false. ' +
        'Calculated output dimension is negative. Check kernel_shape, pads, strides and dilations.\n',
    ),
    "node '/MaxPool' (MaxPool): Calculated output dimension is negative. Check kernel_shape, pads, strides and dilations.",
  ],
  [
    'a template with its arguments',
    running(
      'Pad',
      `${core}/providers/cpu/tensor/padbase.h:122 static void onnxruntime::PadBase::ComputePadsImpl(` +
        'KernelContextType&, size_t, gsl::span<const long int>, PadsVector&) [with KernelContextType = ' +
        'onnxruntime::OpKernelContext; size_t = long unsigned int; PadsVector = absl::lts_20250814::InlinedVector' +
        '<long int, 10, std::allocator<long int> >] pads_data.size() == 2 * data_rank was false. ' +
        'Pads tensor size should be equal to twice the input dimension count \n',
    ),
    "node '/Pad' (Pad): Pads tensor size should be equal to twice the input dimension count",
  ],
  [
    'a call operator of a template, and a condition in parts',
    running(
      'MelWeightMatrix',
      `${core}/providers/cpu/signal/window_functions.cc:133 onnxruntime::common::Status onnxruntime::` +
        'CreateMelWeightMatrix<T>::operator()(onnxruntime::OpKernelContext*, int64_t, int64_t, int64_t, float, float) ' +
        '[with T = float; int64_t = long int] lowest_index >= 0 && lowest_index < dft_length was false. ' +
        'lower_edge_hertz is out of range.\n',
    ),
    "node '/MelWeightMatrix' (MelWeightMatrix): lower_edge_hertz is out of range.",
  ],
  [
    'an anonymous namespace',
    running(
      'Dropout',
      `${core}/providers/cpu/nn/dropout_op.h:42 float onnxruntime::{anonymous}::GetRatioOrDefault(` +
        'const onnxruntime::Tensor*) [with T2 = float] 0.0f <= ratio_value && ratio_value < 1.0f was false. ' +
        'ratio must be in the range [0, 1)\n',
    ),
    "node '/Dropout' (Dropout): ratio must be in the range [0, 1)",
  ],
  [
    'a status in a signature, with a file of its own',
    running(
      'ConstantOfShape',
      `${core}/framework/op_kernel.cc:83 virtual OrtValue* onnxruntime::OpKernelContext::OutputMLValue(int, ` +
        'const onnxruntime::TensorShape&) [ONNXRuntimeError] : 1 : FAIL : tensor.cc:57 CalculateTensorStorageSize ' +
        'Tensor shape.Size() must be >= 0\n',
    ),
    "node '/ConstantOfShape' (ConstantOfShape): Tensor shape.Size() must be >= 0",
  ],
  [
    'a class made of a template',
    running(
      'ConstantOfShape',
      `${core}/common/safeint.h:17 static void SafeIntExceptionHandler<onnxruntime::OnnxRuntimeException>::` +
        'SafeIntOnOverflow() Integer overflow\n',
    ),
    "node '/ConstantOfShape' (ConstantOfShape): Integer overflow",
  ],
  [
    'nodes within nodes',
    running('Loop', running('Concat', 'std::bad_alloc')),
    "node '/Loop' (Loop): node '/Concat' (Concat): it asks for more memory than there is (std::bad_alloc)",
  ],
  [
    'memory of the arena',
    running(
      'Pad',
      `${core}/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, ` +
        'onnxruntime::Stream*) Failed to allocate memory for requested buffer of size 36000000000000256\n',
    ),
    "node '/Pad' (Pad): Failed to allocate memory for requested buffer of size 36000000000000256",
  ],
  ['a function of the standard library', running('Cast', 'stoll'), "node '/Cast' (Cast): a text is not a number"],
  ['no reason', running('ArgMax', ''), "node '/ArgMax' (ArgMax): it failed without a reason"],
  ['a node without a name', running('Relu', 'no', ''), 'node of Relu: no'],
  [
    'a lambda, while a session is made',
    `Exception during initialization: ${core}/providers/cpu/text/string_normalizer.cc:235 onnxruntime::` +
      'StringNormalizer::Locale::Locale(const std::string&)::<lambda()> Failed to construct locale with name:en_US\n',
    'Exception during initialization: Failed to construct locale with name:en_US',
  ],
  [
    'a constructor, while a model is read',
    `Load model from /data/a b/model.onnx failed:${core}/graph/graph.cc:1389 onnxruntime::Graph::Graph(` +
      'const onnxruntime::Model&, onnx::GraphProto*, const std::unordered_map<std::__cxx11::basic_string<char>, int>&, ' +
      'onnxruntime::Version, bool) !utils::HasExternalDataInMemory(tensor) was false. ' +
      "Initializer 'w' references an ORT in-memory address marker, which is not allowed in a model protobuf.\n",
    "Initializer 'w' references an ORT in-memory address marker, which is not allowed in a model protobuf.",
  ],
  [
    'a condition alone',
    `Load model from m.onnx failed:${core}/graph/graph.cc:9 void onnxruntime::Graph::Init() is_valid was false.\n`,
    'is_valid was false.',
  ],
  [
    'several lines',
    'Got invalid dimensions for input: x for the following indices\n index: 0 Got: 3 Expected: 2\n Please fix the model.',
    'Got invalid dimensions for input: x for the following indices index: 0 Got: 3 Expected: 2 Please fix the model.',
  ],
];

describe("ONNX Runtime's reason is told without its source", () => {
  test.each(messages)('a message with %s is told by its reason alone', (_form, message, reason) => {
    expect(onnxRuntimeReason(message)).toBe(reason);
    expect(onnxRuntimeReason(reason)).toBe(reason);
  });

  test.each(['the model has no input y', 'a::b(c) is wrong', 'see /etc/hosts:3 (it is empty)', ''])(
    'a message of another origin stays: %j',
    (message) => expect(onnxRuntimeReason(message)).toBe(message),
  );
});
