export { broadcast, sliceRange, type Dims } from './dims.ts';
export { inferShapes, type InferredShapes, type ShapeOptions } from './infer.ts';
export { convolutionWindows, poolWindows } from './pool-windows.ts';
