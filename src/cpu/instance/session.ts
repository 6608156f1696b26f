/** Opens a model on the CPU, or writes it prepared for that. */
import { givesOptional } from './optional-inputs.ts';
import type { SessionSettings } from './protocol.ts';
import { sessionOptions } from './session-options.ts';
import type { ModelOpening } from '../../onnx/index.ts';
import { loadOnnxRuntime, NativeSession, type SessionOptions, type Tensor } from '../../tensor/index.ts';

// Before there is a model: a blank process counts as started once ONNX Runtime is loaded.
loadOnnxRuntime();

/** Few models need it: an instance starts without the code that reads and writes models. */
const loadOnnx = async () => await import('../../onnx/index.ts');

/** A session that must be given the optional inputs, and what they are in a call that leaves them out. */
interface Overridable {
  readonly session: NativeSession;
  readonly defaults: readonly Tensor[];
}

/** The sessions of a model: one, and a second one once a call gives an optional input. */
export class ModelSession {
  readonly #session: NativeSession;
  readonly #opening: ModelOpening | undefined;
  readonly #openOverridable: () => Overridable;
  #overridable: Overridable | undefined;

  private constructor(session: NativeSession, opening: ModelOpening | undefined, openOverridable: () => Overridable) {
    this.#session = session;
    this.#opening = opening;
    this.#openOverridable = openOverridable;
  }

  /**
   * Rejects with ONNX Runtime's reason.
   * @param prepared a file that {@link writePrepared} has made of the model; default: the model is opened itself
   */
  static async open(
    modelPath: string,
    settings: SessionSettings,
    opening?: ModelOpening,
    prepared?: string,
  ): Promise<ModelSession> {
    const options = sessionOptions(settings);
    const onnx = opening === undefined ? undefined : await loadOnnx();
    const session =
      prepared !== undefined
        ? // Its graph is optimized already; trying again would only cost time.
          new NativeSession(prepared, { ...options, graphOptimizationLevel: 'disabled' }, opening?.bfloat16Outputs)
        : (onnx?.openServed(modelPath, options, opening) ?? new NativeSession(modelPath, options));
    return new ModelSession(session, opening, () => ({
      session: onnx!.openOverridable(modelPath, options, opening!),
      defaults: onnx!.defaultsOf(modelPath, opening!),
    }));
  }

  /** Inputs that each call must give. */
  get inputNames(): readonly string[] {
    return this.#session.inputNames;
  }

  /** As {@link NativeSession.runTensors}; optional inputs that are not given have their initializers. */
  runTensors(inputs: readonly Tensor[], outputs?: readonly string[]): Tensor[] {
    if (!givesOptional(inputs, this.#opening)) return this.#session.runTensors(inputs, outputs);
    this.#overridable ??= this.#openOverridable();
    const { session, defaults } = this.#overridable;
    const left = defaults.filter(({ name }) => !inputs.some((input) => input.name === name));
    return session.runTensors([...inputs, ...left], outputs ?? this.#session.outputNames);
  }

  release(): void {
    this.#session.release();
    this.#overridable?.session.release();
  }
}

/** Constants smaller than this stay in the model itself. */
const sharedBytesMin = 1024;

/**
 * Writes the optimized graph of a model to `preparedPath`, and its weights beside it under `weightsFile` in the layout
 * that this processor's kernels use. A session that loads them maps that file instead of copying it. Rejects with ONNX
 * Runtime's reason
 */
export async function writePrepared(
  modelPath: string,
  opening: ModelOpening | undefined,
  preparedPath: string,
  weightsFile: string,
): Promise<void> {
  const usual = sessionOptions({ threads: 1, spinning: false, isAlone: false });
  const options: SessionOptions = {
    ...usual,
    optimizedModelFilePath: preparedPath,
    extra: {
      session: {
        ...(usual.extra?.['session'] as object),
        save_external_prepacked_constant_initializers: '1',
        optimized_model_external_initializers_file_name: weightsFile,
        optimized_model_external_initializers_min_size_in_bytes: String(sharedBytesMin),
      },
    },
  };
  const { openServed } = await loadOnnx();
  openServed(modelPath, options, opening).release();
}
