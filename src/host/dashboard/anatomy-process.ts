/** Computes one anatomy, or lists what there is. */
import { serve } from '../../process/index.ts';
import { anatomyChoices, AnatomyError, computeAnatomy } from './anatomy.ts';

export type AnatomyQuestion =
  | { readonly of: 'choices' }
  | { readonly of: 'anatomy'; readonly model: string; readonly machine: string; readonly gpu: number };

export interface AnatomyFailure {
  readonly message: string;
  /** It was asked for what there is not. */
  readonly isRefusal: boolean;
}

serve<AnatomyQuestion, AnatomyFailure>(
  async (question) => ({
    answer:
      question.of === 'choices' ? anatomyChoices() : computeAnatomy(question.model, question.machine, question.gpu),
  }),
  { failureOf: (error) => ({ message: (error as Error).message, isRefusal: error instanceof AnatomyError }) },
);
