/** A plan that loads each layer with weights over one link, for a function that a GPU process covers. */
import type { GpuCoverage } from '../../src/gpu/index.ts';
import type { ColdStartPlan } from '../../src/plan/index.ts';

export function loadingAll({ layers = [] }: GpuCoverage): ColdStartPlan {
  return {
    mode: 'pipeswitch',
    primary: 0,
    secondaries: [],
    bytesGpu: layers.reduce((sum, { bytes }) => sum + bytes, 0),
    layers: layers.map(({ name, bytes }) => ({
      name,
      method: bytes > 0 ? 'load' : 'dha',
      link: bytes > 0 ? 0 : null,
    })),
  };
}
