/**
 * What may be done with the rows of each model, found once: by its declared dimensions, then by its graph and by runs in
 * a process of its own. Joining on CPUs and GPUs, splits, workers and metadata all ask for this.
 */
import { tmpdir } from 'node:os';
import { createHash } from 'node:crypto';
import { loadPeakBytes, processorIdentity } from '../../hardware/index.ts';
import { callOnce, compiledModule, niceness } from '../../process/index.ts';
import { declaredRows } from '../../rows/index.ts';
import { keepTensors, onnxRuntimeVersion, type Tensor } from '../../tensor/index.ts';
import type { Log } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import type { FunctionVersion, RowsState } from '../types.ts';
import { FoundOfModels } from './found-of-models.ts';
import type { InTurn } from './validator.ts';

export interface RowCheckOrder {
  readonly modelPath: string;
  /** Most rows of a run. */
  readonly rowsMax: number;
  /** Of a processor. */
  readonly timeMs: number;
  /** All memory of its process. */
  readonly memoryBytes: number;
}

/** What a check has found. `unknown`: the model does not run on inputs that were guessed, or is random. */
export type RowsFound =
  | { readonly kind: 'independent'; readonly by: 'graph' | 'runs' }
  | { readonly kind: 'mixing'; readonly reason: string }
  | { readonly kind: 'unknown'; readonly reason: string };

/** @param inputs of a call, or none. Rejects if the process ended. */
export type CheckRows = (order: RowCheckOrder, inputs: readonly Tensor[], signal: AbortSignal) => Promise<RowsFound>;

/** What identifies a model, and how it is to be run. */
type Subject = Pick<
  FunctionVersion,
  'key' | 'modelPath' | 'modelSha256' | 'modelBytes' | 'externalDataStamp' | 'metadata' | 'settings'
>;

interface Kept {
  readonly model: string;
  readonly rowsMax: number;
  readonly found: RowsFound & { readonly kind: 'independent' | 'mixing' };
}

type Entry =
  | { readonly kind: 'checking'; readonly rowsMax: number; readonly done: Promise<void> }
  | { readonly kind: 'found'; readonly rowsMax: number; readonly found: RowsFound };

/** A publication, a change of settings or a load waits this long for a check. */
const patienceMs = 5_000;
/** A check takes this long at most. */
const checkMsMax = 120_000;
/** For a process that hangs in a run. */
const graceMs = 30_000;
/** In the place of a publisher's name: those have no such form. */
const turnName = 'checks of rows';
/** Checks of one model that came to no verdict. */
const triesMax = 5;

export class RowChecks extends FoundOfModels<Kept> {
  readonly #check: CheckRows;
  readonly #logger: Log;
  readonly #onVerdict: (modelSha256: string) => void;
  /** By {@link identityOf}. */
  readonly #entries = new Map<string, Entry>();
  readonly #tries = new Map<string, number>();
  readonly #inTurn: InTurn;
  readonly #stop = new AbortController();

  /**
   * @param inTurn lets one check run beside validations
   * @param onVerdict called when what is known of a model has changed
   */
  constructor(folder: string, check: CheckRows, inTurn: InTurn, logger: Log, onVerdict: (modelSha256: string) => void) {
    super(folder, checkerName());
    this.#check = check;
    this.#inTurn = inTurn;
    this.#logger = logger;
    this.#onVerdict = onVerdict;
  }

  /** Takes in what was found before. */
  async start(): Promise<void> {
    for (const { model, rowsMax, found } of await this.all())
      this.#entries.set(model, { kind: 'found', rowsMax, found });
  }

  /** What is known now. Begins a check if the function wants to join calls, and nothing is known. */
  stateOf(version: Subject & Pick<FunctionVersion, 'state'>): RowsState | undefined {
    return version.state.status === 'ready' ? this.#stateOf(version) : undefined;
  }

  /**
   * Waits a while for the verdict on a function that is to join calls. @throws HostError 'bad-settings' if its calls
   * cannot share a run
   */
  async admit(version: Subject): Promise<void> {
    const state = this.#stateOf(version);
    const entry = this.#entries.get(identityOf(version));
    if (state?.kind === 'checking' && entry?.kind === 'checking') {
      let timer: NodeJS.Timeout | undefined;
      await Promise.race([entry.done, new Promise<void>((resolve) => (timer = setTimeout(resolve, patienceMs)))]);
      clearTimeout(timer);
    }
    const now = this.#stateOf(version);
    if (now?.kind !== 'alone') return;
    throw new HostError(
      'bad-settings',
      `setting 'batching.max' is ${version.settings.batching.batchMax}, but calls of this model cannot share a run ` +
        `(leave it at 1): ${now.reason}`,
    );
  }

  /** A call's inputs, for a model that runs on none that were guessed. */
  shown(version: Subject, inputs: readonly Tensor[]): void {
    const entry = this.#entries.get(identityOf(version));
    if (entry?.kind !== 'found' || entry.found.kind !== 'unknown') return;
    keepTensors(inputs);
    this.#begin(version, inputs);
    this.#onVerdict(version.modelSha256);
  }

  /** A joined run in service gave a call a wrong answer, which nobody got. */
  async mixed(version: Subject, reason: string): Promise<void> {
    await this.#found(version, Infinity, { kind: 'mixing', reason });
  }

  /** Ends the check under way. */
  stop(): void {
    this.#stop.abort();
  }

  #stateOf(version: Subject): RowsState | undefined {
    const { settings, metadata, modelSha256 } = version;
    const { batchMax, assume } = settings.batching;
    if (batchMax <= 1 || metadata === undefined || modelSha256 === '') return undefined;
    const declared = declaredRows(metadata);
    if (declared.kind === 'none') return { kind: 'alone', reason: declared.reason };
    if (declared.kind === 'fixed')
      return { kind: 'alone', reason: `the first dimension of its inputs is fixed to ${declared.rows}` };
    const entry = this.#entries.get(identityOf(version));
    const isShort = entry?.kind === 'found' && entry.found.kind === 'independent' && entry.rowsMax < batchMax;
    if (entry === undefined || isShort) {
      this.#begin(version, []);
      return { kind: 'checking' };
    }
    if (entry.kind === 'checking') return { kind: 'checking' };
    const { found } = entry;
    switch (found.kind) {
      case 'independent':
        return found;
      case 'mixing':
        return { kind: 'alone', reason: found.reason };
      case 'unknown':
        if (assume === 'independent') return { kind: 'independent', by: 'owner' };
        return { kind: 'waiting', reason: found.reason };
    }
  }

  #begin(version: Subject, inputs: readonly Tensor[]): void {
    const rowsMax = version.settings.batching.batchMax;
    const done = this.#checked(version, rowsMax, inputs).catch((error: unknown) => {
      if (!this.#stop.signal.aborted)
        this.#logger.error({ err: error, function: version.key }, 'a check of rows failed');
    });
    this.#entries.set(identityOf(version), { kind: 'checking', rowsMax, done });
  }

  async #checked(version: Subject, rowsMax: number, inputs: readonly Tensor[]): Promise<void> {
    const identity = identityOf(version);
    const { signal } = this.#stop;
    const found = await this.#inTurn(turnName, signal, async (ownBytes): Promise<RowsFound> => {
      const tries = (this.#tries.get(identity) ?? 0) + 1;
      this.#tries.set(identity, tries);
      if (tries > triesMax) return { kind: 'mixing', reason: 'no check of its rows came to an end' };
      try {
        const { modelPath, modelBytes } = version;
        const memoryBytes = Math.max(ownBytes, loadPeakBytes(modelBytes));
        return await this.#check({ modelPath, rowsMax, timeMs: checkMsMax, memoryBytes }, inputs, signal);
      } catch (error) {
        // A publication has moved its files meanwhile, or the model ends its process.
        return { kind: 'unknown', reason: error instanceof Error ? error.message : String(error) };
      }
    });
    if (!this.#stop.signal.aborted) await this.#found(version, rowsMax, found);
  }

  async #found(version: Subject, rowsMax: number, found: RowsFound): Promise<void> {
    const { key, modelSha256 } = version;
    this.#entries.set(identityOf(version), { kind: 'found', rowsMax, found });
    if (found.kind === 'independent') this.#logger.info({ function: key, by: found.by }, 'its calls may share runs');
    else this.#logger.warn({ function: key, reason: found.reason }, 'its calls run alone');
    this.#onVerdict(modelSha256);
    if (found.kind === 'unknown') return;
    await this.keep(modelSha256, { model: identityOf(version), rowsMax: Math.min(rowsMax, 2 ** 31), found });
  }
}

const identityOf = ({ modelSha256, modelBytes, externalDataStamp = '' }: Subject): string =>
  `${modelSha256} ${modelBytes} ${externalDataStamp}`;

/** Kernels depend on the processor's instructions, and so do their roundings. */
function checkerName(): string {
  const processor = createHash('sha256').update(processorIdentity()).digest('hex');
  return `onnxruntime ${onnxRuntimeVersion()}, rows 1, processor ${processor.slice(0, 16)}`;
}

export interface RowCheckApi {
  check(order: RowCheckOrder, inputs: readonly Tensor[]): RowsFound;
}

/** Each check has a process of its own, since models of any kind run in it. */
export const checkRowsInProcess: CheckRows = async (order, tensors, stop) => {
  const remote = {
    what: 'the process that checked its rows',
    process: {
      module: compiledModule('./row-check-process.js', import.meta.url),
      // A model that wants more memory than its share fails alone.
      limits: { memoryBytes: order.memoryBytes },
      // Nothing of the host's environment: a model must not see keys and addresses.
      environment: { LANG: 'C.UTF-8', TMPDIR: tmpdir() },
      memoryScore: 1000,
      purpose: 'validators',
      niceness: niceness.background,
    },
  };
  const options = { tensors, stop, timeMsMax: order.timeMs + graceMs };
  return await callOnce<RowCheckApi, 'check'>(remote, 'check', order, options);
};
