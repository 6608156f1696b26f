/** The result of a validation, how it is serialized, and where it is remembered. */
import { dirname, join } from 'node:path';
import { onnxRuntimeVersion } from '../../tensor/index.ts';
import type { ModelMetadata, Publisher, TensorSpec } from '../types.ts';
import { namesInFolder, readTextIfThere, unlinkIfThere } from '../../tools/index.ts';
import { fileBytes, replaceFile } from './disk.ts';
import { isSha256 } from './names.ts';
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

interface CacheEntry {
  readonly checkedBy: string;
  readonly metadata: ModelMetadata;
  readonly externalFiles: readonly { readonly name: string; readonly bytes: number }[];
}

/**
 * Remembers accepted models by the sha256 of the model file, in one small file each, so that a restart need not open
 * them again. A refusal is not remembered: lack of memory or time may have caused it.
 */
export class Validations {
  readonly #folder: string;
  readonly #validate: ValidateModel;
  /** Another ONNX Runtime may know other operators, so verdicts are per version. */
  readonly #checkedBy: string;

  constructor(folder: string, validate: ValidateModel, checkedBy: string = validatorName()) {
    this.#folder = folder;
    this.#validate = validate;
    this.#checkedBy = checkedBy;
  }

  /** The remembered verdict, as long as the external data is unchanged. */
  async recall(modelPath: string, modelSha256: string): Promise<ValidatedModel | undefined> {
    const text = await readTextIfThere(this.#path(modelSha256));
    if (text === undefined) return undefined;
    try {
      const entry = JSON.parse(text) as CacheEntry;
      if (entry.checkedBy !== this.#checkedBy) return undefined;
      for (const { name, bytes } of entry.externalFiles) {
        if ((await fileBytes(join(dirname(modelPath), name))) !== bytes) return undefined;
      }
      return {
        metadata: reviveMetadata(entry.metadata),
        externalFiles: entry.externalFiles.map(({ name }) => name),
      };
    } catch {
      return undefined; // Not one of ours, or damaged: validating again replaces it.
    }
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
    const entry: CacheEntry = { checkedBy: this.#checkedBy, metadata: validated.metadata, externalFiles };
    // A verdict that cannot be stored is still valid; the next start validates again.
    await replaceFile(this.#path(modelSha256), `${JSON.stringify(entry)}\n`).catch(() => undefined);
    return validated;
  }

  /** For a model that no function has any more. */
  async forget(modelSha256: string): Promise<void> {
    await unlinkIfThere(this.#path(modelSha256));
  }

  /** Forgets every model that is not in `known`. */
  async keepOnly(known: ReadonlySet<string>): Promise<void> {
    for (const file of await namesInFolder(this.#folder)) {
      const sha256 = file.replace(/\.json$/, '');
      if (!isSha256(sha256) || !known.has(sha256)) await unlinkIfThere(join(this.#folder, file));
    }
  }

  #path(modelSha256: string): string {
    return join(this.#folder, `${modelSha256}.json`);
  }
}

const validatorName = (): string => `onnxruntime ${onnxRuntimeVersion()}, checks 3`;
