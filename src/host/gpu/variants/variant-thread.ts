/** Plans the variants. */
import { loadChrion } from '../../../plan/index.ts';
import { serve } from '../../../process/index.ts';
import type { GraphProfile } from '../../../profile/index.ts';

export interface VariantQuestion {
  readonly profile: GraphProfile;
  readonly options: { readonly cores: number; readonly limitMs: number; readonly variantsMax: number };
}

const { planVariants } = await loadChrion();

serve(async ({ profile, options }: VariantQuestion) => ({ answer: planVariants(profile, options) }));
