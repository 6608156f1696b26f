/** Operators on images: elements at named places, regions, and convolutions that are moved. */
import type { Operator } from '../types.ts';
import { deformConv } from './deformable.ts';
import { gridOperators } from './grid-sample.ts';
import { regionOperators } from './regions.ts';

export const visionOperators: readonly Operator[] = [...gridOperators, ...regionOperators, deformConv];
