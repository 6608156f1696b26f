export { broadcast, sliceRange, type Dims, type Known } from './dims.ts';
export { inferShapes, type InferredShapes, type ShapeOptions } from './infer.ts';
export { poolWindows, type PoolWindow } from './pool-windows.ts';
