import type { InputShapes, ProgramPrecision } from '../../gpu/index.ts';
import type { FunctionPlans } from '../../live/index.ts';
import type { FunctionVersion } from '../types.ts';
import { knownShapesOf, type KnownShapes } from './known-shapes.ts';

export interface Joining {
  /** According to its settings. */
  rowsMax: number;
  /** The offered sizes, the single run first; undefined while calls run one by one. */
  sizes: readonly number[] | undefined;
  isTimed: boolean;
  /** How often timing them was tried. */
  timings: number;
}

/** The work of one function on the GPUs: its plans, programs and what waits, beside the data of its record. */
export class GpuFunction {
  version: FunctionVersion;
  readonly precision: ProgramPrecision;
  plans: FunctionPlans | undefined;
  /** The largest difference from ONNX Runtime's answers when it was checked, relative to an output's largest value. */
  difference: number | undefined;
  shapes: KnownShapes;
  /** Sizes of the latest call before it had a program; its first program is made for these. */
  called: InputShapes | undefined;
  /** Guessed sizes came to nothing: they are not tried again where a call's are there. */
  isGuessInVain = false;
  /** The inputs whose values its programs are made for. */
  sizing: ReadonlySet<string> = new Set();
  /** How its calls are joined into runs. */
  readonly joining: Joining = { rowsMax: 1, sizes: undefined, isTimed: false, timings: 0 };
  /** Its work so far: later work is chained to it. */
  work: Promise<void>;
  /** Resolves when the scheduler has freed all its layers. */
  retracted = Promise.resolve();
  /** The process may have it. */
  isRegistered: boolean;
  /** Aborts waiting parts of the latest work. */
  overtaken = new AbortController();

  /** @param before with another model under this key, or in another precision */
  constructor(version: FunctionVersion, precision: ProgramPrecision, before?: GpuFunction) {
    this.version = version;
    this.precision = precision;
    this.shapes = knownShapesOf(version);
    this.work = before?.work ?? Promise.resolve();
    this.isRegistered = before?.isRegistered ?? false;
  }
}
