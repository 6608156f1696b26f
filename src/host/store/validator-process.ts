/** The validator's process. If it ends without a verdict, how it ended is the answer: see validator.ts. */
import { stat } from 'node:fs/promises';
import { serve } from '../../process/index.ts';
import { checkModelFile } from './model-check.ts';
import type { ValidatorApi } from './validator.ts';

serve<ValidatorApi>({
  // Its first use starts the threads that read files: where no more may be started, this process ends here.
  ready: async () => void (await stat('.')),
  check: checkModelFile,
});
