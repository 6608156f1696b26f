/** Computes one anatomy, or lists what there is, and prints it: `anatomy-process.js [model machine gpu]`. */
import { anatomyChoices, AnatomyError, computeAnatomy } from './anatomy.ts';

const [model, machine, gpu] = process.argv.slice(2);
try {
  const answer =
    model === undefined ? anatomyChoices() : computeAnatomy(model, machine ?? 'p3.8xlarge', Number(gpu ?? '0'));
  process.stdout.write(JSON.stringify({ answer }));
} catch (error) {
  if (!(error instanceof AnatomyError)) throw error;
  process.stdout.write(JSON.stringify({ refusal: error.message }));
}
