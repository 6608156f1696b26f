/** Fusion: several nodes of the model become one that runs faster. Each pass changes the graph until nothing more fits. */
import type { Operator } from '../../operators/types.ts';
import type { WorkGraph } from '../work-graph.ts';

export function fuse(_graph: WorkGraph, _operators: ReadonlyMap<string, Operator>): void {}
