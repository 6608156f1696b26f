/** Plans the variants. */
import { loadChrion, type ChrionPlan } from '../../../plan/index.ts';
import { serve } from '../../../process/index.ts';
import type { GraphProfile } from '../../../profile/index.ts';

export interface VariantQuestion {
  readonly profile: GraphProfile;
  readonly options: { readonly cores: number; readonly limitMs: number; readonly variantsMax: number };
}

export interface VariantApi {
  plan(question: VariantQuestion): readonly ChrionPlan[];
}

const { planVariants } = await loadChrion();

serve<VariantApi>({ plan: ({ profile, options }) => planVariants(profile, options) });
