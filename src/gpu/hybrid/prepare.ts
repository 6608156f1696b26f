/**
 * The graph that plans over GPU and CPU are about: folded for its input shapes, recurrent operators unrolled into
 * cells.
 */
import { LRUCache } from 'lru-cache';
import { getOrMake } from '../../tools/index.ts';
import { baseOf } from '../program/compile-model.ts';
import { prepareGraph } from '../program/prepare.ts';
import type { PreparedGraph } from '../program/prepared.ts';
import type { InputShapes } from '../program/types.ts';
import { unrolledModel } from './unrolled.ts';

export interface HybridGraphOptions {
  readonly modelPath: string;
  readonly shapes: InputShapes;
  /** Into which the longest recurrent operator is unrolled. */
  readonly cells: number;
  readonly cacheFolder: string;
}

/** A graph is asked for once by the profile and once by each plan. */
const graphs = new LRUCache<string, Promise<PreparedGraph>>({ max: 4 });

/** @throws ProgramError, OnnxError */
export function hybridGraph({ modelPath, shapes, cells, cacheFolder }: HybridGraphOptions): Promise<PreparedGraph> {
  const key = JSON.stringify([modelPath, shapes, cells, cacheFolder]);
  return getOrMake(graphs, key, () => {
    const graph = unrolledModel(modelPath, shapes, cells, cacheFolder).then(async (path) =>
      prepareGraph(await baseOf(path, cacheFolder), shapes, cacheFolder),
    );
    graph.catch(() => graphs.delete(key));
    return graph;
  });
}
