import type { InputShapes } from '../../src/gpu/index.ts';

/** Shapes of inputs in a short form for tests. */
export const shaped = (written: Readonly<Record<string, readonly number[]>>): InputShapes =>
  Object.entries(written).map(([name, shape]) => ({ name, shape }));
