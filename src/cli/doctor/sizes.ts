/** Sizes with which a model runs: as given, else guessed and tried one after the other. */
import { CpuError, firstThatRunsAlone, trialRuns, trialSizesOf } from '../../cpu/index.ts';
import type { InputShapes } from '../../gpu/index.ts';
import { given } from '../../tools/index.ts';
import { trialShapes, type ModelMetadata, type Sizes } from '../../onnx/index.ts';

export type TriedSizes = Awaited<ReturnType<typeof trySizes>>;

/** Finds sizes for the open dimensions: those that the command gives, and guesses that run. Throws CpuError. */
export async function trySizes(
  modelPath: string,
  { inputs, opening }: ModelMetadata,
  sizesGiven: Sizes,
  timeoutMs: number,
) {
  const sizes = trialSizesOf(inputs, sizesGiven);
  const guessed = Object.keys(sizes[0]).filter((key) => sizesGiven[key] === undefined);
  try {
    const found = await firstThatRunsAlone(
      { modelPath, ...given({ opening }) },
      trialRuns(inputs, 1, sizes),
      timeoutMs,
    );
    const shapes: InputShapes = found.tensors.map(({ name, shape }) => ({ name, shape }));
    return { state: 'runs' as const, sizes: found.sizes, guessed, shapes };
  } catch (error) {
    if (!(error instanceof CpuError)) throw error;
    return { state: 'fails' as const, sizes: sizes[0], guessed, reason: error.message };
  }
}

/** Shapes to try on the GPU engine: those that ran on the CPU, else the given sizes with guesses for the rest. */
export const shapesAfter = (tried: TriedSizes, { inputs }: ModelMetadata, sizesGiven: Sizes): readonly InputShapes[] =>
  tried.state === 'runs' ? [tried.shapes] : trialShapes(inputs, sizesGiven);

/** 'audio.1 = 512 (guessed; --dim audio.1=N says otherwise)' */
export function sizesText({ sizes, guessed }: Pick<TriedSizes, 'sizes' | 'guessed'>): string {
  // The batch is the least of interest.
  const example = guessed.find((key) => sizes[key] !== 1) ?? guessed[0];
  const texts = Object.entries(sizes).map(([key, size]) => `${key} = ${size}`);
  const otherwise = example === undefined ? '' : ` (guessed; --dim ${example}=N says otherwise)`;
  return `${texts.join(', ')}${otherwise}`;
}
