/** An example call of a model: small sizes and plain values with which it runs, found by trials. */
import { CpuError, firstThatRunsAlone } from '../cpu/index.ts';
import { shapesWith, trialSizes, unknownSize, type ModelMetadata, type Sizes, type TensorSpec } from '../onnx/index.ts';
import { bytesOfNumbers, elementCount, packBytes, type Tensor } from '../tensor/index.ts';
import { given, nestedExample } from '../tools/index.ts';
import { sizesText } from './doctor/sizes.ts';
import { usage } from './error.ts';

interface ExampleTrial {
  readonly sizes: Sizes;
  /** Every whole number in it. */
  readonly integer: 0 | 1;
  readonly tensors: readonly Tensor[];
}

/** Time limit of a model's load, and of each run. */
const timeoutMs = 120_000;

/** Nested numbers cannot say that a tensor is empty. */
const notEmpty = (sizes: Sizes): Sizes =>
  Object.fromEntries(Object.entries(sizes).map(([key, size]) => [key, Math.max(1, size)]));

/** Zeros, but for whole numbers: a length or a step of 0 may be refused. */
function* trialsOf(inputs: readonly TensorSpec[], given: Sizes): Generator<ExampleTrial, void> {
  for (const sizes of trialSizes(inputs, given, 'smallest').map(notEmpty)) {
    const shapes = shapesWith(inputs, sizes);
    for (const integer of [0, 1] as const) {
      const tensors = inputs.map(({ name, datatype }, index): Tensor => {
        const { shape } = shapes[index]!;
        const count = elementCount(shape);
        if (datatype === 'BYTES') return { name, datatype, shape, data: packBytes(Array<string>(count).fill('text')) };
        const value = isWhole(datatype) ? integer : 0;
        return { name, datatype, shape, data: bytesOfNumbers(datatype, Array<number>(count).fill(value)) };
      });
      yield { sizes, integer, tensors };
    }
  }
}

const isWhole = (datatype: string): boolean => /^U?INT/.test(datatype);

/**
 * @param sizesGiven of open dimensions
 * @returns nested values by input, and a line about the sizes; undefined if there is nothing to say
 * @throws CliError for a size that is no open dimension
 */
export async function exampleInputs(
  modelPath: string,
  { inputs, opening }: Pick<ModelMetadata, 'inputs' | 'opening'>,
  sizesGiven: Sizes,
) {
  const unknown = unknownSize(inputs, sizesGiven);
  if (unknown !== undefined) throw usage(unknown);
  const [first] = trialsOf(inputs, sizesGiven);
  let found = first!;
  let refusal: string | undefined;
  try {
    found = await firstThatRunsAlone({ modelPath, ...given({ opening }) }, trialsOf(inputs, sizesGiven), timeoutMs);
  } catch (error) {
    if (!(error instanceof CpuError)) throw error;
    refusal = error.message;
  }
  const { sizes, integer } = found;
  const guessed = Object.keys(sizes).filter((key) => sizesGiven[key] === undefined);
  const shapes = shapesWith(inputs, sizes);
  const example = Object.fromEntries(
    inputs.map(({ name, datatype }, index) => [
      name,
      nestedExample({ datatype, shape: shapes[index]!.shape }, isWhole(datatype) ? integer : 0),
    ]),
  );
  const about = Object.keys(sizes).length === 0 ? '' : ` with ${sizesText({ sizes, guessed })}`;
  const ran = about === '' ? undefined : `the model runs${about}`;
  return { example, note: refusal === undefined ? ran : `the model did not run${about}: ${refusal}` };
}
