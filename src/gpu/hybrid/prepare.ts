/** The graph for plans over GPU and CPU: folded for its input shapes, with recurrent operators unrolled into cells. */
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
  /** Number of cells for the longest recurrent operator. */
  readonly cells: number;
  readonly cacheFolder: string;
}

/** The profile and each plan of a function need the same graph. */
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
