/**
 * What came of comparisons of a GPU's answers with those of ONNX Runtime, on disk: a restart does not compare all
 * again.
 */
import { createHash } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { shapesKey, type InputShapes } from '../../gpu/index.ts';
import type { FunctionVersion } from '../types.ts';
import { writeWhole } from './plans.ts';

export type Verdict = { readonly kind: 'agreed' } | { readonly kind: 'disagreed'; readonly reason: string };

/** A plan of a function in shapes of its inputs. */
export interface Subject {
  readonly shapes: InputShapes;
  /** In whose program they run, padded. Default: in one of their own. */
  readonly program?: InputShapes | undefined;
  /** Of all of it on the GPU where it is left out. */
  readonly rung?: string | undefined;
  /** Of the rung: two plans of one name differ in it. */
  readonly prefixBytes?: readonly number[] | undefined;
}

type Model = Pick<FunctionVersion, 'key' | 'modelSha256' | 'modelBytes' | 'externalDataStamp'>;

export class Verdicts {
  readonly #folder: string;
  readonly #engine: string;

  /**
   * @param engine names the GPUs, the driver, the compiler and the engine: what others answered counts for nothing here
   */
  constructor(folder: string, engine: string) {
    this.#folder = folder;
    this.#engine = engine;
  }

  async find(model: Model, subject: Subject | 'any'): Promise<Verdict | undefined> {
    try {
      const json = JSON.parse(await readFile(this.#path(model, subject), 'utf8')) as {
        readonly kind?: unknown;
        readonly reason?: unknown;
      };
      if (json.kind === 'agreed') return { kind: 'agreed' };
      return json.kind === 'disagreed' ? { kind: 'disagreed', reason: String(json.reason) } : undefined;
    } catch {
      // Absent, or cut off: it is compared again.
      return undefined;
    }
  }

  /** @param subject `any`: the model answers wrongly for some inputs, and no plan of it is to be trusted */
  async keep(model: Model, subject: Subject | 'any', verdict: Verdict): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    const about = { firstFor: model.key, engine: this.#engine, ...(subject === 'any' ? {} : subject) };
    await writeWhole(this.#path(model, subject), { ...verdict, ...about });
  }

  #path(model: Model, subject: Subject | 'any'): string {
    const shapes = subject === 'any' ? subject : ranIn(subject);
    const plan = subject === 'any' ? [] : [subject.rung, subject.prefixBytes];
    return keptPath(this.#folder, this.#engine, model, [shapes, plan]);
  }
}

/** Of what is kept about a model under one engine. @param about all that it depends on beside */
export function keptPath(
  folder: string,
  engine: string,
  { modelSha256, modelBytes, externalDataStamp }: Model,
  about: readonly unknown[],
): string {
  const identity = JSON.stringify([engine, modelSha256, modelBytes, externalDataStamp, ...about]);
  return join(folder, `${createHash('sha256').update(identity).digest('hex').slice(0, 32)}.json`);
}

function ranIn({ shapes, program = shapes }: Subject): string {
  const [own, whole] = [shapesKey(shapes), shapesKey(program)];
  return own === whole ? own : `${own} in ${whole}`;
}
