/** Operators on images: sampling by a grid, pooling of regions, and deformable convolutions. */
import type { Operator } from '../types.ts';
import { deformConv } from './deformable.ts';
import { gridOperators } from './grid-sample.ts';
import { regionOperators } from './regions.ts';

export const visionOperators: readonly Operator[] = [...gridOperators, ...regionOperators, deformConv];
