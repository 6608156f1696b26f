/**
 * What came of comparisons of a GPU's answers with those of ONNX Runtime, on disk: a restart does not compare all
 * again.
 */
import { shapesKey, type InputShapes } from '../../gpu/index.ts';
import { ModelNotes, type Model } from './model-notes.ts';

export type Verdict =
  /** `difference`: the largest seen, relative to an output's largest magnitude; undefined where it is not known. */
  { readonly kind: 'agreed'; readonly difference?: number } | { readonly kind: 'disagreed'; readonly reason: string };

/** A plan of a function with certain input shapes. */
export interface Subject {
  readonly shapes: InputShapes;
  /** The shapes in whose program they run, padded. Default: their own. */
  readonly program?: InputShapes | undefined;
  /** Default: the whole model on the GPU. */
  readonly variant?: string | undefined;
  /** Of the plan: two plans of one name differ in it. */
  readonly prefixBytes?: readonly number[] | undefined;
}

export class Verdicts {
  readonly #notes: ModelNotes;

  /** As {@link ModelNotes}. */
  constructor(folder: string, engine: string) {
    this.#notes = new ModelNotes(folder, engine);
  }

  find(model: Model, subject: Subject | 'any'): Promise<Verdict | undefined> {
    return this.#notes.find(model, aboutOf(subject), ({ kind, reason, difference }): Verdict | undefined => {
      if (kind === 'agreed') return { kind, ...(typeof difference === 'number' ? { difference } : {}) };
      return kind === 'disagreed' ? { kind, reason: String(reason) } : undefined;
    });
  }

  /** @param subject `any`: the model answers wrongly for some inputs, and no plan of it is to be trusted */
  keep(model: Model, subject: Subject | 'any', verdict: Verdict): Promise<void> {
    return this.#notes.keep(model, aboutOf(subject), { ...verdict, ...(subject === 'any' ? {} : subject) });
  }
}

const aboutOf = (subject: Subject | 'any'): readonly unknown[] =>
  subject === 'any' ? [subject, []] : [ranIn(subject), [subject.variant, subject.prefixBytes]];

function ranIn({ shapes, program = shapes }: Subject): string {
  const [own, whole] = [shapesKey(shapes), shapesKey(program)];
  return own === whole ? own : `${own} in ${whole}`;
}
