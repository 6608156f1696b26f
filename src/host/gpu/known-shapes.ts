/**
 * The input shapes for which a function has a verified program on the GPUs, and those for which a program is worth
 * making. Batches of similar size share one: a batch of 5 runs in the program for 8. A function called with more shapes
 * than there is room for keeps the programs that serve most calls; the other shapes stay on the CPU, and no program is
 * made in vain.
 */
import { shapeClasses, shapesKey, type InputShapes } from '../../gpu/index.ts';
import type { WhyNot } from '../../live/index.ts';
import type { FunctionVersion } from '../types.ts';

/** Besides those of its registration; the GPU process keeps the same number per function. */
const readyMax = 16;
const refusedMax = 1000;
/** Calls after which all counts are halved: shapes that are no longer called give way. */
const agingCalls = 64 * readyMax;
/** After this many calls, a shape that more than half of them have gets a program of its own size. */
const ownProgramCalls = 256;
/** The most calls between two comparisons that decide nothing. */
const undecidedCallsMax = 1024;

/** A program to make, or an existing one for inputs of further shapes. */
export interface WantedProgram {
  readonly program: InputShapes;
  /** Shapes whose program is given up for it. */
  readonly instead?: InputShapes;
}

interface Ready {
  readonly shapes: InputShapes;
  readonly program: InputShapes;
  readonly programKey: string;
}

export interface KnownShapesOptions {
  /** Shapes of its registration, whose program the GPU process always keeps; undefined if they were not checked. */
  readonly own?: InputShapes | undefined;
  /** The shapes in whose program inputs may run, if rows are independent. Default: their own. */
  readonly classOf?: (shapes: InputShapes) => InputShapes;
}

export class KnownShapes {
  readonly #own: string | undefined;
  readonly #classOf: (shapes: InputShapes) => InputShapes;
  readonly #ready = new Map<string, Ready>();
  readonly #refused = new Map<string, string>();
  readonly #calls = new Map<string, number>();
  /** Of the call that was asked about last: each call is asked about several times. */
  #latestKey: { readonly shapes: InputShapes; readonly key: string } | undefined;
  /** False once the model's graph was found to combine rows. */
  #areRowsApart = true;
  #counted = 0;
  #preparing: string | undefined;
  /** Calls to let pass after the latest comparison that decided nothing, and how many of them have come. */
  #undecided = { calls: 0, passed: 0 };

  constructor({ own, classOf = (shapes) => shapes }: KnownShapesOptions = {}) {
    this.#own = own && shapesKey(own);
    this.#classOf = classOf;
    if (own !== undefined) this.ready(own, own);
  }

  /** Any shapes that can run. */
  get any(): InputShapes | undefined {
    return this.#ready.values().next().value?.shapes;
  }

  /** Counts a call with inputs of these shapes. */
  called(shapes: InputShapes): void {
    const key = this.#keyOf(shapes);
    this.#undecided.passed++;
    this.#calls.set(key, this.#callsOf(key) + 1);
    if (++this.#counted % agingCalls !== 0) return;
    for (const [each, calls] of this.#calls) {
      if (calls < 2) this.#calls.delete(each);
      else this.#calls.set(each, Math.floor(calls / 2));
    }
  }

  /**
   * Whether a program for these is worth making now. Without room, its calls must be twice those of the program that it
   * replaces: otherwise shapes called in turn would replace each other, each compiled again for a single call.
   */
  wants(shapes: InputShapes): WantedProgram | undefined {
    const key = this.#keyOf(shapes);
    if (this.#preparing !== undefined || this.#refused.has(key)) return undefined;
    if (this.#undecided.passed < this.#undecided.calls) return undefined;
    const found = this.#ready.get(key);
    if (found !== undefined && (found.programKey === key || !this.#isMostCalled(key))) return undefined;
    const program = found === undefined && this.#areRowsApart ? this.#classOf(shapes) : shapes;
    const programs = this.#programs();
    const programKey = shapesKey(program);
    if (programKey === this.#own || programs.has(programKey)) return { program };
    const [least, ...others] = [...programs].toSorted(([, a], [, b]) => a.calls - b.calls);
    if (least === undefined || others.length + 1 < readyMax) return { program };
    const [, { calls, program: instead }] = least;
    return this.#callsOf(key) >= 2 * calls + 2 ? { program, instead } : undefined;
  }

  /** Why these must not run on a GPU; undefined if they may. */
  whyNot(shapes: InputShapes): WhyNot | undefined {
    const key = this.#keyOf(shapes);
    if (this.#ready.has(key)) return undefined;
    const refusal = this.#refused.get(key);
    if (refusal !== undefined) return { reason: 'shape-refused', words: `not for inputs of ${key}: ${refusal}` };
    const isFull = this.#programs().size >= readyMax;
    const words =
      this.#preparing === key
        ? 'is being prepared'
        : isFull
          ? `is not there: ${readyMax} other shapes are called more often`
          : 'is not there yet';
    return { reason: 'shape', words: `its program for inputs of ${key} ${words}` };
  }

  preparing(shapes: InputShapes, { instead }: Pick<WantedProgram, 'instead'>): void {
    this.#preparing = shapesKey(shapes);
    if (instead === undefined) return;
    const given = shapesKey(instead);
    for (const [key, { programKey }] of this.#ready) if (programKey === given) this.#ready.delete(key);
  }

  /** It failed, or is over: if these shapes are still unknown, their next call tries again. */
  dropped(): void {
    this.#preparing = undefined;
  }

  /**
   * A call's inputs did not tell whether an answer is right. Each time twice as many calls pass before the next
   * comparison: blank pages may go on for long, and each costs a load and a run on both sides.
   */
  undecided(): void {
    const calls = Math.min(undecidedCallsMax, Math.max(1, 2 * this.#undecided.calls));
    this.#undecided = { calls, passed: 0 };
  }

  /** A row's answer depends on the other rows: from now on each size has its own program. */
  rowsMeet(): void {
    this.#areRowsApart = false;
    this.dropped();
  }

  refused(shapes: InputShapes, reason: string): void {
    this.#preparing = undefined;
    this.#refused.set(shapesKey(shapes), reason);
    for (const oldest of this.#refused.keys()) {
      if (this.#refused.size <= refusedMax) break;
      this.#refused.delete(oldest);
    }
  }

  ready(shapes: InputShapes, program: InputShapes): void {
    this.#preparing = undefined;
    this.#undecided = { calls: 0, passed: 0 };
    this.#ready.set(shapesKey(shapes), { shapes, program, programKey: shapesKey(program) });
  }

  /** The process is gone. The next one has only the registration's program, and may have room for others. */
  lost(): void {
    this.#refused.clear();
    for (const key of this.#ready.keys()) if (key !== this.#own) this.#ready.delete(key);
  }

  #keyOf(shapes: InputShapes): string {
    if (this.#latestKey?.shapes !== shapes) this.#latestKey = { shapes, key: shapesKey(shapes) };
    return this.#latestKey.key;
  }

  #callsOf(key: string): number {
    return this.#calls.get(key) ?? 0;
  }

  #isMostCalled(key: string): boolean {
    const calls = this.#callsOf(key);
    if (calls < ownProgramCalls) return false;
    const all = [...this.#calls.values()].reduce((sum, each) => sum + each, 0);
    return 2 * calls > all;
  }

  /** Programs that may be given up, with the calls that they serve. */
  #programs(): ReadonlyMap<string, { readonly program: InputShapes; readonly calls: number }> {
    const programs = new Map<string, { program: InputShapes; calls: number }>();
    for (const [key, { program, programKey }] of this.#ready) {
      if (programKey === this.#own) continue;
      programs.set(programKey, { program, calls: (programs.get(programKey)?.calls ?? 0) + this.#callsOf(key) });
    }
    return programs;
  }
}

/** @param own the shapes of its registration, if they were checked */
export function knownShapesOf({ metadata }: FunctionVersion, own?: InputShapes): KnownShapes {
  return new KnownShapes({ own, ...(metadata === undefined ? {} : { classOf: shapeClasses(metadata.inputs) }) });
}
