/**
 * The anatomy of a cold start, simulated: all modes in one picture, layer by layer (DeepPlan, Figures 7 to 9). It takes
 * up to a second to compute, so the host runs it in another process ({@link anatomyAnswer} in ask-anatomy.ts).
 */
import { loadMachine, MachineError, machinePresets } from '../../hardware/index.ts';
import { coldStartModes, planColdStart, simulate } from '../../plan/index.ts';
import { plannedColdStart } from './cold-start-timeline.ts';
import type { AnatomyAnswer, AnatomyChoices } from './timeline-types.ts';
import { estimateLayers, modelNames, namedModel, ProfileError } from '../../profile/index.ts';

export interface AnatomyQuestion {
  readonly model: string;
  readonly machine: string;
  readonly gpu: number;
}

/** The requested model, machine or GPU does not exist; the message names it. */
export class AnatomyError extends Error {
  override readonly name = 'AnatomyError';
}

export function anatomyChoices(): AnatomyChoices {
  return { models: modelNames(), machines: machinePresets() };
}

/** @throws AnatomyError for an unknown model, machine or GPU */
export function computeAnatomy({
  model: modelName,
  machine: machineName,
  gpu: primary,
}: AnatomyQuestion): AnatomyAnswer {
  if (!modelNames().includes(modelName)) {
    throw new AnatomyError(`there is no model '${modelName.slice(0, 80)}'; there are ${modelNames().join(', ')}`);
  }
  if (!machinePresets().includes(machineName)) {
    throw new AnatomyError(
      `there is no machine preset '${machineName.slice(0, 80)}'; there are ${machinePresets().join(', ')}`,
    );
  }
  try {
    const machine = loadMachine(machineName);
    if (primary >= machine.gpus.length) {
      throw new AnatomyError(`${machineName} has no GPU ${primary}; it has ${machine.gpus.length}`);
    }
    const { model, dimensions } = namedModel(modelName);
    const { profile } = estimateLayers(model, machine, { gpu: primary, dimensions });
    const timelines = coldStartModes.map((mode) => {
      const plan = planColdStart(profile, machine, mode, { primary });
      return plannedColdStart(plan, simulate(profile, machine, plan));
    });
    return { provenance: `simulated on ${machineName}, layer times estimated`, timelines };
  } catch (error) {
    if (error instanceof MachineError || error instanceof ProfileError) throw new AnatomyError(error.message);
    throw error;
  }
}
