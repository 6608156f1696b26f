/**
 * Sizes for a model's open dimensions when none were given. Everything that has to run a model before a call has shown
 * its sizes takes them from here: profiles, programs for the GPUs, `turntable init`, `doctor` and `profile`. They are
 * guesses, so each caller tries one after the other until the model runs.
 */
import { elementCount } from '../tensor/index.ts';
import type { TensorSpec } from './describe.ts';

/** An input as far as its sizes go; see {@link TensorSpec}. */
export type OpenInput = Pick<TensorSpec, 'name' | 'shape' | 'dimensionNames'>;

/** By {@link dimensionKey}. */
export type Sizes = Readonly<Record<string, number>>;

/** The model's name for an open dimension; where it has none, the input's with the axis: 'audio.1'. */
export const dimensionKey = ({ name, dimensionNames }: OpenInput, axis: number): string =>
  dimensionNames[axis] ?? `${name}.${axis}`;

const sequenceName = /seq|len|token|position|context|time|step/i;
/** A cache of earlier tokens: the first call has none. */
const pastName = /past/i;

/**
 * Lengths of a sequence, in the order of the trials. A model refuses lengths above its number of positions; CLIP's text
 * models have 77.
 */
const sequenceSizes = [128, 77, 64, 32, 16, 8, 1];
const imageSize = 224;
const otherSize = 16;

/** Then all open dimensions but batches have one size. Sound needs the larger ones: a window of 512, a second of 16,000. */
const uniformSizes = [1, 16, 32, 64, 128, 224, 512, 1024, 16_000];

/** Most elements of one input; larger trials are left out. */
const elementsMax = 2 ** 22;

interface Rule {
  /** Size of dimensions with a sequence's name. */
  readonly sequence: number;
  /** Size of dimensions with no telling name. */
  readonly other: number;
  /** Height and width of images. */
  readonly image: number;
  readonly channels: number;
  /** Size of an open dimension behind a fixed one, as in a state [layers, batch, hidden]; undefined: as of any other. */
  readonly state: number | undefined;
}

const uniform = (size: number, state?: number): Rule => ({
  sequence: size,
  other: size,
  image: size,
  channels: size,
  state,
});

function sizeByName(name: string, rule: Rule): number | undefined {
  // 'past_sequence_length + 1'
  if (name.includes('+')) {
    const parts = name.split('+').map((part) => {
      const text = part.trim();
      return /^\d+$/.test(text) ? Number(text) : sizeByName(text, rule);
    });
    return parts.reduce<number>((sum, part) => sum + (part ?? rule.other), 0);
  }
  if (/batch/i.test(name)) return 1;
  if (pastName.test(name)) return 0;
  if (sequenceName.test(name)) return rule.sequence;
  if (/height|width|image/i.test(name)) return rule.image;
  if (/channel/i.test(name)) return rule.channels;
  return undefined;
}

function sizeOf({ shape, dimensionNames }: OpenInput, axis: number, isBatched: boolean, rule: Rule): number {
  const name = dimensionNames[axis];
  if (axis === 0 && isBatched) return 1;
  const named = name === undefined ? undefined : sizeByName(name, rule);
  if (named !== undefined) return named;
  if (axis === 0) return 1;
  const isState = shape.length < 4 && shape[0] !== -1;
  if (isState && rule.state !== undefined) return rule.state;
  if (shape.length !== 4) return rule.other;
  // Rows of pixels, columns of them, and channels in front.
  const isChannels = axis === 1 && shape[2] === -1 && shape[3] === -1;
  return isChannels ? rule.channels : rule.image;
}

/** Whether the first dimension of every input is open: then it is the batch. */
export const isBatched = (inputs: readonly OpenInput[]): boolean =>
  inputs.length > 0 && inputs.every(({ shape }) => shape[0] === -1);

/** The keys of all open dimensions, the batch among them. */
export const openDimensions = (inputs: readonly OpenInput[]): ReadonlySet<string> =>
  new Set(
    inputs.flatMap((input) => input.shape.flatMap((size, axis) => (size === -1 ? [dimensionKey(input, axis)] : []))),
  );

function sizesBy(inputs: readonly OpenInput[], given: Sizes, rule: Rule): Record<string, number> {
  const areBatched = isBatched(inputs);
  const sizes: Record<string, number> = {};
  for (const input of inputs) {
    for (const [axis, size] of input.shape.entries()) {
      if (size !== -1) continue;
      const key = dimensionKey(input, axis);
      sizes[key] ??= given[key] ?? sizeOf(input, axis, areBatched, rule);
    }
  }
  return sizes;
}

function isSmall(inputs: readonly OpenInput[], sizes: Sizes): boolean {
  return shapesWith(inputs, sizes).every(({ shape }) => elementCount(shape) <= elementsMax);
}

/**
 * Sizes of all open dimensions, in the order of the trials: what their names tell first. `smallest`: the smallest first,
 * for an example that a person reads.
 */
export function trialSizes(
  inputs: readonly OpenInput[],
  given: Sizes = {},
  order: 'usual' | 'smallest' = 'usual',
): readonly [Sizes, ...Sizes[]] {
  const usual = sequenceSizes.map((sequence): Rule => ({
    sequence,
    other: otherSize,
    image: imageSize,
    channels: 3,
    state: 1,
  }));
  const uniforms = [...uniformSizes.map((size) => uniform(size, 1)), ...uniformSizes.map((size) => uniform(size))];
  const rules = order === 'usual' ? [...usual, ...uniforms] : [...uniforms, ...usual];
  const all = rules.map((rule) => sizesBy(inputs, given, rule));
  const [first, ...others] = all;
  const fitting = [first!, ...others.filter((sizes) => isSmall(inputs, sizes))];
  const different = new Map(fitting.map((sizes) => [JSON.stringify(sizes), sizes]));
  const [wanted, ...alternatives] = different.values();
  return [wanted!, ...alternatives];
}

/** The inputs' shapes with these sizes; an open dimension without one is 1. */
export function shapesWith(inputs: readonly OpenInput[], sizes: Sizes) {
  return inputs.map((input) => ({
    name: input.name,
    shape: input.shape.map((size, axis) => (size === -1 ? (sizes[dimensionKey(input, axis)] ?? 1) : size)),
  }));
}

/** As {@link trialSizes}, as shapes. */
export function trialShapes(
  inputs: readonly OpenInput[],
  given: Sizes = {},
): readonly [ReturnType<typeof shapesWith>, ...ReturnType<typeof shapesWith>[]] {
  const [first, ...others] = trialSizes(inputs, given).map((sizes) => shapesWith(inputs, sizes));
  return [first!, ...others];
}

/** The first of `given` that is no open dimension, in words; undefined if all are. */
export function unknownSize(inputs: readonly OpenInput[], given: Sizes): string | undefined {
  const open = openDimensions(inputs);
  const unknown = Object.keys(given).find((key) => !open.has(key));
  if (unknown === undefined) return undefined;
  return `the model has no open dimension '${unknown}' (open there: ${[...open].join(', ') || 'none'})`;
}
