import type { InputShapes } from '../../src/gpu/index.ts';

/** Shapes of inputs as a test writes them down. */
export const shaped = (written: Readonly<Record<string, readonly number[]>>): InputShapes =>
  Object.entries(written).map(([name, shape]) => ({ name, shape }));
