/** The validator's process. How it ends when it gives no verdict is part of the answer too: see validator.ts. */
import { serve } from '../../process/index.ts';
import { checkModelFile } from './model-check.ts';
import type { ValidatorOrder } from './validator.ts';

serve(async (order: ValidatorOrder) => {
  switch (order.op) {
    case 'ready':
      return { answer: null };
    case 'check':
      return { answer: await checkModelFile(order.modelPath) };
  }
});
