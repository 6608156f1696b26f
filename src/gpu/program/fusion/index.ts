/** Fusion: replaces several nodes by one that runs faster. */
import type { Operator } from '../../operators/types.ts';
import type { ProgramSettings } from '../../types.ts';
import type { WorkGraph } from '../work-graph.ts';
import { fuseAttention } from './attention.ts';
import { fuseGelu } from './gelu.ts';
import { fuseJointProducts } from './joint-products.ts';
import { fuseMaskedSoftmax, fuseResidualNormalizations } from './normalizations.ts';
import { fuseConvolutions, fuseProducts } from './products.ts';
import { fuseWholeAttention } from './whole-attention.ts';

/** Changes `graph`. A pass runs only if `operators` has the operator that it makes. */
export function fuse(graph: WorkGraph, operators: ReadonlyMap<string, Operator>, settings: ProgramSettings): void {
  type Pass = (graph: WorkGraph, settings: ProgramSettings) => void;
  const passes: readonly (readonly [needs: string, pass: Pass])[] = [
    ['Gelu', fuseGelu],
    ['turntable.Product', fuseProducts],
    ['turntable.JointProduct', fuseJointProducts],
    ['turntable.MaskedSoftmax', fuseMaskedSoftmax],
    ['turntable.Attention', fuseWholeAttention],
    ['turntable.HeadProduct', fuseAttention],
    ['turntable.AddLayerNormalization', fuseResidualNormalizations],
    ['turntable.Conv', fuseConvolutions],
  ];
  for (const [needs, pass] of passes) {
    if (!operators.has(needs)) continue;
    pass(graph, settings);
    graph.sweep();
  }
}
