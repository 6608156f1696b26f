/** Runs batches of several sizes in one program. */
export { shapeClasses } from './classes.ts';
export { PaddedShapes, type Padding } from './padded-shapes.ts';
export { paddingOf, type PaddingFound } from './padding-of.ts';
