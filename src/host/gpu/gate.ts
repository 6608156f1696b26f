/** The gate before the GPUs: a plan's answer is compared with ONNX Runtime's to the same inputs. */
import type { GpuCheck, GpuClient, InputShapes } from '../../gpu/index.ts';
import { methodsWithin, wholePlan, type ColdStartPlan } from '../../plan/index.ts';
import type { GpuOffer } from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { FunctionPlans, LiveScheduler } from '../../live/index.ts';
import { given } from '../../tools/index.ts';
import type { FunctionVersion } from '../types.ts';
import type { Room } from './room.ts';
import type { Subject, Verdict, Verdicts } from './verdicts.ts';

export interface GateOptions {
  readonly check: GpuClient['check'];
  readonly room: Room;
}

/** `undecided`: ONNX Runtime does not run these inputs, or the outputs are too small to tell a wrong answer. */
export type Passed = Verdict | { readonly kind: 'undecided'; readonly reason: string };

/** Inputs of a call, or shapes for random ones. */
export interface Given {
  readonly inputs?: readonly Tensor[];
  readonly shapes: InputShapes;
}

interface Variant {
  readonly variant: string | undefined;
  readonly plan: ColdStartPlan;
  readonly prefixBytes: readonly number[] | undefined;
  readonly bytes: number;
}

/** From the largest down. */
export function variantsOf(plans: FunctionPlans): Variant[] {
  const variants: Variant[] = [];
  for (let offer: GpuOffer | null | undefined = plans.offers[0]; offer; offer = offer.smaller) {
    const { plan: variant, prefixBytes } = offer;
    const isWhole = variant === undefined || variant === wholePlan;
    const bytes = prefixBytes.at(-1) ?? 0;
    variants.push({
      variant,
      plan: plans.planOf(0, plans.mode, variant),
      prefixBytes: isWhole ? undefined : prefixBytes,
      bytes,
    });
  }
  return variants;
}

/** The whole model on the first GPU, as far as it fits, before it is planned. */
export function wholeVariant(
  layers: readonly { readonly name: string; readonly bytes: number }[],
  capacityBytes: number,
): Variant {
  const unknown = layers.map(({ bytes }) => ({ bytes, exec: 0, dha: 0 }));
  const wanted = layers.map(({ bytes }) => (bytes > 0 ? 'load' : 'dha'));
  const methods = methodsWithin(unknown, wanted, capacityBytes);
  const bytesGpu = layers.reduce((sum, { bytes }, index) => sum + (methods[index] === 'load' ? bytes : 0), 0);
  const plan: ColdStartPlan = {
    mode: 'pipeswitch',
    primary: 0,
    secondaries: [],
    bytesGpu,
    layers: layers.map(({ name }, index) => {
      const method = methods[index]!;
      return { name, method, link: method === 'load' ? 0 : null };
    }),
  };
  return { variant: undefined, plan, prefixBytes: undefined, bytes: bytesGpu };
}

/** The whole model is the same plan with and without smaller variants. */
export const subjectOf = (
  { variant, prefixBytes }: Pick<Variant, 'variant' | 'prefixBytes'>,
  shapes: InputShapes,
): Subject => (prefixBytes === undefined ? { shapes } : { shapes, variant, prefixBytes });

export class Gate {
  readonly #options: GateOptions;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /**
   * For a function that is not serving on the GPUs; the layers loaded for the comparisons are freed. Comparisons made
   * earlier on this machine are not repeated.
   *
   * @param following `stage` is called before the GPU process works on it, and before it waits for others
   * @throws GpuError, StaleError
   */
  async pass(
    version: FunctionVersion,
    { verdicts, scheduler }: { readonly verdicts: Verdicts; readonly scheduler: LiveScheduler },
    variants: readonly Variant[],
    { shapes, ...inputs }: Given,
    { stage }: { readonly stage: (stage: 'checking', isInHand: boolean) => Promise<void> },
  ): Promise<Passed> {
    const { key } = version;
    const { check, room } = this.#options;
    let most: number | undefined;
    for (const variant of variants) {
      const subject = subjectOf(variant, shapes);
      const known = await verdicts.find(version, subject);
      if (known?.kind === 'disagreed') return known;
      if (known !== undefined) {
        most = larger(most, known.difference);
        continue;
      }
      const { plan, bytes, variant: name } = variant;
      const begin = async (isInHand: boolean): Promise<void> => await stage('checking', isInHand);
      const wanted = {
        key,
        bytes,
        scheduler,
        ready: () => begin(false),
        begin: () => begin(true),
        // Functions of one model register together, and ONNX Runtime takes seconds to load a large one.
        known: (): Promise<Passed | undefined> => verdicts.find(version, subject),
      };
      const named = name === undefined ? {} : { variant: name };
      const found = await room.use(wanted, async () => {
        const compared = passed(await check(key, { gpu: 0, plan, ...named, ...inputs }), variant);
        if (compared.kind !== 'undecided') await verdicts.keep(version, subject, compared);
        return compared;
      });
      if (found.kind !== 'agreed') return found;
      most = larger(most, found.difference);
    }
    return agreed(most);
  }

  /** For an answer that a GPU has given. @throws GpuError */
  async answered(
    key: string,
    plan: ColdStartPlan,
    inputs: readonly Tensor[],
    outputs: readonly Tensor[],
  ): Promise<Passed> {
    return passed(await this.#options.check(key, { gpu: 0, plan, inputs, outputs }));
  }

  /** For a plan whose weights are on a GPU already. @throws GpuError */
  async resident(key: string, gpu: number, variant: Variant, inputs: readonly Tensor[]): Promise<Passed> {
    const named = variant.variant === undefined ? {} : { variant: variant.variant };
    return passed(await this.#options.check(key, { gpu, plan: variant.plan, ...named, inputs }), variant);
  }
}

const larger = (one: number | undefined, other: number | undefined): number | undefined =>
  one === undefined || (other !== undefined && other > one) ? other : one;

const agreed = (difference: number | undefined): Passed & { kind: 'agreed' } => ({
  kind: 'agreed',
  ...given({ difference }),
});

function passed(check: GpuCheck, variant?: Variant): Passed {
  switch (check.kind) {
    case 'agreed':
      return agreed(check.difference);
    case 'undecided':
      return { kind: 'undecided', reason: check.why };
    case 'disagreed': {
      const under = variant?.prefixBytes === undefined ? '' : `under its plan '${variant.variant}', `;
      return { kind: 'disagreed', reason: `${under}output '${check.output}': ${check.why}` };
    }
  }
}
