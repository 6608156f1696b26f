/** Model files: reads, writes and checks them; graphs and sub-graphs; architectures with seeded weights. */
export * from './types.ts';
export { OnnxError, type OnnxErrorCode } from './error.ts';
export { dataTypeOf, elementBits, elementTypeOf } from './element-type.ts';
export { aligned, chunked, chunksFolder, cutModel, type ChunkSlice, type ModelCut } from './cut.ts';
export { externalReference, isExternal, readAt } from './external-data.ts';
export { checkExpansion } from './expansion.ts';
export { modelOf, parseModel, readModel, readStructure } from './read.ts';
export { serializeModel, writeModel, type Written } from './write.ts';
export { asExternal, tensorBytes, tensorsOfModel, withoutData } from './tensor-data.ts';
export { attributeOf, attributeReader, axisFromFront, type AttributeReader } from './node-attributes.ts';
export { isDefaultDomain, opsetOf } from './opset.ts';
export { einsumLabels } from './einsum-labels.ts';
export { checkModel, domainsOfOnnxRuntime } from './check.ts';
export { describeModel, type ModelMetadata, type TensorSpec } from './describe.ts';
export { optionalInputs, readServed, servedModel } from './served.ts';
export { isMended, openOverridable, openServed, type ModelOpening, defaultsOf } from './served-session.ts';
export {
  dimensionKey,
  shapesWith,
  trialShapes,
  trialSizes,
  unknownSize,
  type OpenInput,
  type Sizes,
} from './trial-sizes.ts';
export { functionKey, Graph, isRandom } from './graph.ts';
export { tensorType, withInputShapes, type GraphNode, type ValueType } from './graph-node.ts';
export { allNodes, capturedBy, namesIn, nestedGraphs, renamed, unusedName } from './scope.ts';
export { extract } from './extract.ts';
export { unrollLoops } from './loops.ts';
export { isParameter, smallTensor, wholeNumbers, type Weight } from './weight.ts';
export { externalFiles, fileStamp, weightLocations, type WeightLocation } from './weight-locations.ts';
export { attributeProto, nodeProto, tensorProto, type AttributeValue } from './protos.ts';
export { GraphBuilder, type ConstantValue } from './builder.ts';
export {
  allowedValues,
  ArchitectureError,
  architectures,
  buildArchitecture,
  type Architecture,
  type BuiltModel,
  type SettingSpec,
  type SettingValue,
} from './architectures/index.ts';
