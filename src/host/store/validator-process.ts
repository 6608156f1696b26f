/** The validator's process. If it ends without a verdict, how it ended is the answer: see validator.ts. */
import { stat } from 'node:fs/promises';
import { serve } from '../../process/index.ts';
import { checkModelFile } from './model-check.ts';
import type { ValidatorOrder } from './validator.ts';

serve(async (order: ValidatorOrder) => {
  switch (order.op) {
    case 'ready':
      // Its first use starts the threads that read files: where no more may be started, this process ends here.
      await stat('.');
      return { answer: null };
    case 'check':
      return { answer: await checkModelFile(order.modelPath) };
  }
});
