/**
 * What a shape rule sees of a node, and what it answers: undefined where the dimensions depend on data. It throws
 * nothing.
 */
import type { AttributeReader } from '../../onnx/index.ts';
import type { Dims, Known } from './dims.ts';

export interface RuleInput {
  readonly inputs: readonly (Known | undefined)[];
  /** Whether the node has an input at this place, known or not. */
  readonly isGiven: (place: number) => boolean;
  readonly attribute: AttributeReader;
  readonly outputCount: number;
}

export type Outputs = readonly (Known | undefined)[];
export type Rule = (input: RuleInput) => Outputs | undefined;

export const one = (dims: Dims | undefined): Outputs | undefined => (dims === undefined ? undefined : [{ dims }]);

/** Whether an input that says which axes, or how many elements, is there but only known while the model runs. */
export const isOpen = ({ inputs, isGiven }: RuleInput, place: number): boolean =>
  isGiven(place) && inputs[place]?.ints === undefined;

/** Keeps the elements, changes the dimensions. */
export const reshaped = (input: Known, dims: Dims): Outputs => [{ dims, ints: input.ints }];
