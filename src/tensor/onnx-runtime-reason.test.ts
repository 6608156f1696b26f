import fc from 'fast-check';
import { expect, test } from 'vitest';
import { withoutPlaces } from './onnx-runtime-reason.ts';

const source = '/onnxruntime_src/onnxruntime/core';

test.each([
  [
    `${source}/graph/model.cc:191 onnxruntime::Model::Model(onnx::ModelProto&&, const onnxruntime::PathString&, const onnxruntime::IOnnxRuntimeOpSchemaRegistryList*, const onnxruntime::logging::Logger&, const onnxruntime::ModelOptions&) Missing opset in the model.`,
    'Missing opset in the model.',
  ],
  [
    `${source}/graph/model_load_utils.h:46 void onnxruntime::model_load_utils::ValidateOpsetForDomain(const std::unordered_map<std::__cxx11::basic_string<char>, int>&, bool, const std::string&, int) ONNX Runtime only *guarantees* support (see docs).`,
    'ONNX Runtime only *guarantees* support (see docs).',
  ],
  [
    `Exception during initialization: ${source}/framework/utils.cc:295 const OrtDevice& onnxruntime::utils::FindDeviceForValue(const onnxruntime::OrtValueNameIdxMap&, std::string_view) [ONNXRuntimeError] : 1 : FAIL : Could not find OrtValue with name ''`,
    "Exception during initialization: [ONNXRuntimeError] : 1 : FAIL : Could not find OrtValue with name ''",
  ],
  [
    `${source}/graph/function_utils.cc:117 onnxruntime::function_utils::IOTypeConstraintHelper(const onnx::FunctionProto&, std::unique_ptr<onnx::OpSchema>&, const onnxruntime::InlinedHashMap<std::__cxx11::basic_string<char>, int>&)::<lambda(const onnx::NodeProto&)> it != opset_imports.end() was false. No opset registered`,
    'it != opset_imports.end() was false. No opset registered',
  ],
  [
    `Load model from model.onnx failed:${source}/graph/graph.cc:1389 onnxruntime::Graph::Graph(const onnxruntime::Model&, onnx::GraphProto*, bool) Initializer 'w' has an in-memory address.`,
    "Initializer 'w' has an in-memory address.",
  ],
  [
    `Non-zero status code returned while running Add node. Name:'' Status Message: ${source}/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory for requested buffer of size 36028797018963968`,
    "Non-zero status code returned while running Add node. Name:'' Status Message: Failed to allocate memory for requested buffer of size 36028797018963968",
  ],
  [
    `${source}/providers/cpu/math/element_wise_ops.h:540 void onnxruntime::BroadcastIterator::Init(ptrdiff_t, ptrdiff_t) [with T = float; V = std::vector<int [2]>] axis == 1 || axis == largest was false. Attempting to broadcast an axis by a dimension other than 1. 2 by 3`,
    'axis == 1 || axis == largest was false. Attempting to broadcast an axis by a dimension other than 1. 2 by 3',
  ],
  [
    `${source}/framework/x.cc:1 std::enable_if_t<(N > 1), int> onnxruntime::F::operator()(int) const noexcept went wrong`,
    'went wrong',
  ],
  [
    'External data path validation failed for initializer: w. Error: tensorprotoutils.cc:434 ValidateExternalDataPathFromDir Absolute path not allowed for external data location',
    'External data path validation failed for initializer: w. Error: Absolute path not allowed for external data location',
  ],
  ['Deserialize tensor z failed.ReadFileIntoBuffer - unexpected end of file. File: w.bin, offset: 16', undefined],
  ["input 'x' is missing in 'feeds'.", undefined],
  [`${source}/a.cc:3 something (not a signature`, 'something (not a signature'],
])('of %j only what went wrong is left', (message, reason) => {
  expect(withoutPlaces(message)).toBe(reason ?? message);
});

const name = fc.stringMatching(/^[A-Za-z_]\w{0,9}$/);
const type = fc.oneof(
  name,
  fc.tuple(name, name).map(([outer, inner]) => `const std::${outer}<${inner}, std::pair<int, ${inner}>>&`),
  fc.tuple(name, name).map(([from, to]) => `std::function<${from}(${to})>`),
);
const signature = fc
  .record({ result: fc.option(type), scope: name, of: name, parameters: fc.array(type, { maxLength: 4 }) })
  .map(
    ({ result, scope, of, parameters }) =>
      `${result === null ? '' : `${result} `}ns::${scope}::${of}(${parameters.join(', ')})`,
  );

test('a signature is cut whatever it looks like, and nothing of the reason is', () => {
  const reason = fc.constantFrom(
    'Tensor w (of f) is bad: [1, 2] != (3).',
    'axis == 1 was false. It is 2',
    "node '/a/b.c:3' takes f(x)",
  );
  fc.assert(
    fc.property(signature, reason, fc.nat(9999), (written, said, line) => {
      expect(withoutPlaces(`Failed: ${source}/a/b_c.cc:${line} ${written} ${said}`)).toBe(`Failed: ${said}`);
    }),
  );
});
