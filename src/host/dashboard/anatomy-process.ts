/** A process that computes one anatomy, or lists the choices. */
import { serve } from '../../process/index.ts';
import { anatomyChoices, AnatomyError, computeAnatomy } from './anatomy.ts';

export type AnatomyQuestion =
  | { readonly of: 'choices' }
  | { readonly of: 'anatomy'; readonly model: string; readonly machine: string; readonly gpu: number };

export interface AnatomyFailure {
  readonly message: string;
  /** The question named something that does not exist. */
  readonly isRefusal: boolean;
}

serve<AnatomyQuestion, AnatomyFailure>(
  async (question) => ({
    answer:
      question.of === 'choices' ? anatomyChoices() : computeAnatomy(question.model, question.machine, question.gpu),
  }),
  { failureOf: (error) => ({ message: (error as Error).message, isRefusal: error instanceof AnatomyError }) },
);
