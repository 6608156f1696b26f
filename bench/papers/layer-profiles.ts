/** What the layers of models cost on machines: each is estimated once for all figures. */
import type { Machine } from '../../src/hardware/index.ts';
import { estimateLayers, namedModel, type LayerProfile } from '../../src/profile/index.ts';
import { getOrMake } from '../../src/tools/index.ts';

const byMachine = new WeakMap<Machine, Map<string, LayerProfile>>();

/** @param batch rows of one start */
export function profileOf(name: string, machine: Machine, batch = 1): LayerProfile {
  const ofMachine = getOrMake(byMachine, machine, () => new Map<string, LayerProfile>());
  return getOrMake(ofMachine, `${name}, ${batch}`, () => {
    const { model, dimensions } = namedModel(name);
    return estimateLayers(model, machine, { dimensions: { ...dimensions, batch } }).profile;
  });
}
