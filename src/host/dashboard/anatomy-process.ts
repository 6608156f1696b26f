/** A process that computes one anatomy, or lists the choices. */
import { serve } from '../../process/index.ts';
import { anatomyChoices, computeAnatomy, type AnatomyQuestion } from './anatomy.ts';
import type { AnatomyAnswer, AnatomyChoices } from './timeline-types.ts';

export interface AnatomyApi {
  choices(): AnatomyChoices;
  anatomy(question: AnatomyQuestion): AnatomyAnswer;
}

serve<AnatomyApi>({ choices: anatomyChoices, anatomy: computeAnatomy });
