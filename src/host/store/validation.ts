/** The result of a validation, how it is serialized, and where it is remembered. */
import { dirname, join } from 'node:path';
import { onnxRuntimeVersion } from '../../tensor/index.ts';
import type { ModelMetadata, Publisher, TensorSpec } from '../types.ts';
import { fileBytes } from './disk.ts';
import { FoundOfModels } from './found-of-models.ts';
import type { SplitModel, SplitOrder } from './split-model.ts';

export interface ValidatedModel {
  readonly metadata: ModelMetadata;
  /** Files of external data that the model names, relative to its folder. */
  readonly externalFiles: readonly string[];
  /** The split form, as it lies in the folder that was asked for; undefined: the model stays whole. */
  readonly split?: SplitModel;
}

/**
 * Opens a model where it can do no harm. Throws HostError 'model-refused' with the reason; 'validator-unavailable' if
 * the machine and not the model is why there is no verdict; 'client-gone'. Without a publisher it is for this host.
 */
export type ValidateModel = (modelPath: string, publisher?: Publisher, split?: SplitOrder) => Promise<ValidatedModel>;

/** JSON writes undefined in an array as null; this restores it in `dimensionNames`. */
export function reviveMetadata(json: ModelMetadata): ModelMetadata {
  const { inputs, optionalInputs, outputs } = json;
  return {
    ...json,
    inputs: inputs.map(reviveSpec),
    ...(optionalInputs && { optionalInputs: optionalInputs.map(reviveSpec) }),
    outputs: outputs.map(reviveSpec),
  };
}

function reviveSpec(spec: TensorSpec): TensorSpec {
  return { ...spec, dimensionNames: spec.dimensionNames.map((name: string | null | undefined) => name ?? undefined) };
}

interface Accepted {
  readonly metadata: ModelMetadata;
  readonly externalFiles: readonly { readonly name: string; readonly bytes: number }[];
}

/** Remembers accepted models. A refusal is not remembered: lack of memory or time may have caused it. */
export class Validations extends FoundOfModels<Accepted> {
  readonly #validate: ValidateModel;

  constructor(folder: string, validate: ValidateModel) {
    // Another ONNX Runtime may know other operators, so verdicts are per version.
    super(folder, `onnxruntime ${onnxRuntimeVersion()}, checks 3`);
    this.#validate = validate;
  }

  /** The remembered verdict, as long as the external data is unchanged. */
  async recall(modelPath: string, modelSha256: string): Promise<ValidatedModel | undefined> {
    const accepted = await this.kept(modelSha256, ({ metadata, externalFiles }) => ({
      metadata: reviveMetadata(metadata),
      files: externalFiles.map(({ name, bytes }) => ({ name, bytes })),
    }));
    if (accepted === undefined) return undefined;
    const { metadata, files } = accepted;
    for (const { name, bytes } of files) {
      if ((await fileBytes(join(dirname(modelPath), name))) !== bytes) return undefined;
    }
    return { metadata, externalFiles: files.map(({ name }) => name) };
  }

  /** The remembered verdict, or else a new one, which a split form needs. Throws HostError 'model-refused'. */
  async check(
    modelPath: string,
    modelSha256: string,
    publisher?: Publisher,
    split?: SplitOrder,
  ): Promise<ValidatedModel> {
    const known = split === undefined ? await this.recall(modelPath, modelSha256) : undefined;
    if (known !== undefined) return known;
    const validated = await this.#validate(modelPath, publisher, split);
    const externalFiles = await Promise.all(
      validated.externalFiles.map(async (name) => ({
        name,
        bytes: (await fileBytes(join(dirname(modelPath), name))) ?? 0,
      })),
    );
    await this.keep(modelSha256, { metadata: validated.metadata, externalFiles });
    return validated;
  }
}
