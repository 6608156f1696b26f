/** Input and result of a shape rule. The result is undefined if the dimensions depend on data. Rules never throw. */
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

/** Whether an input with axes or counts exists, but is known only at run time. */
export const isOpen = ({ inputs, isGiven }: RuleInput, place: number): boolean =>
  isGiven(place) && inputs[place]?.ints === undefined;

/** Keeps the elements, changes the dimensions. */
export const reshaped = (input: Known, dims: Dims): Outputs => [{ dims, ints: input.ints }];
