export { attributesOf, type Attributes } from './attributes.ts';
export { elementCount, type Dims, type Known } from './dims.ts';
export { inferShapes, type InferredShapes, type ShapeOptions } from './infer.ts';
