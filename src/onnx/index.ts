/** Model files: read, write and check them; graphs, layers and sub-graphs; architectures generated with seeded weights. */
export * from './types.ts';
export {
  GraphBuilder,
  GraphBuilderError,
  type AttributeValue,
  type ConstantValue,
  type GraphBuilderOptions,
  type SymbolicShape,
  type WeightData,
} from './builder.ts';
