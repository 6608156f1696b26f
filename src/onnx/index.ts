/** Model files: read, write and check them; graphs, layers and sub-graphs; architectures generated with seeded weights. */
export * from './types.ts';
export { OnnxError, type OnnxErrorCode } from './error.ts';
export { dataTypeOf, elementBits, elementTypeName, elementTypeOf } from './element-type.ts';
export { externalFiles } from './external-files.ts';
export { parseModel, readModel, type ReadOptions } from './read.ts';
export { serializeModel, writeModel, type ExternalLayout, type WriteOptions, type Written } from './write.ts';
export { tensorByteLength, tensorBytes, tensorElementCount } from './tensor-data.ts';
export {
  GraphBuilder,
  GraphBuilderError,
  type AttributeValue,
  type ConstantValue,
  type GraphBuilderOptions,
  type SymbolicShape,
  type WeightData,
} from './builder.ts';
