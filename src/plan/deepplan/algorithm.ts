/**
 * Chooses which layers to load and which to execute from host memory: DeepPlan (Jeong et al., EuroSys 2023), section
 * 4.3.2, Algorithm 1, with the same decisions as the authors' published planner. That differs from the paper's listing
 * in three ways: a layer whose direct-host-access costs more than 1.5 times its loading is never changed; such a layer
 * ends the search for this stall instead of being skipped; and stalls are computed again only once one is gone.
 */
import type { LayerProfile, ProfileLayer } from '../../profile/index.ts';

/** `load`: copied to the GPU before it executes. `dha`: executes from host memory; also for layers without weights. */
export type LayerMethod = 'load' | 'dha';

/** Milliseconds of a pipeline in which one link loads in order while one GPU executes (paper, Figure 8). */
export interface PipelineStep {
  /** When this layer ends. */
  readonly end: number;
  /** How long it waited for its weights. */
  readonly stall: number;
}

const overloadFactor = 1.5;

/** Extra execution time of a layer with direct-host-access, milliseconds (PerfDiff of the paper). */
const addedMs = ({ exec, dha }: ProfileLayer): number => dha - exec;

/** Loads every layer that has weights. */
export function loadAll({ layers }: Pick<LayerProfile, 'layers'>): LayerMethod[] {
  return layers.map(({ bytes }) => (bytes > 0 ? 'load' : 'dha'));
}

/** The pipeline of a profile for a choice of methods, one step for each layer. */
export function pipelineSteps(layers: readonly ProfileLayer[], methods: readonly LayerMethod[]): PipelineStep[] {
  let ahead = 0;
  let end = 0;
  return layers.map((layer, index) => {
    let stall = 0;
    let duration = layer.dha;
    if (methods[index] === 'load') {
      ahead -= layer.load;
      if (ahead < 0) {
        stall = -ahead;
        ahead = 0;
      }
      duration = layer.exec;
    }
    ahead += duration;
    end += stall;
    end += duration;
    return { end, stall };
  });
}

/** Algorithm 1. Decisions depend only on `bytes` (0 or not), `load`, `exec` and `dha`; n^2 log n in the layers. */
export function deepPlan({ layers }: Pick<LayerProfile, 'layers'>): LayerMethod[] {
  const methods = loadAll({ layers });
  let steps = pipelineSteps(layers, methods);
  // Kept sorted by (added time, -load); of equals the earlier layer first, as after a stable sort.
  const candidates: number[] = [];
  const compare = (a: number, b: number): number => {
    const [left, right] = [layers[a]!, layers[b]!];
    return addedMs(left) - addedMs(right) || right.load - left.load || a - b;
  };
  for (let stalled = 0; stalled < layers.length; stalled++) {
    insertSorted(candidates, stalled, compare);
    let { stall } = steps[stalled]!;
    if (stall <= 0) continue;
    for (const index of candidates) {
      if (methods[index] === 'dha') continue;
      const layer = layers[index]!;
      const added = addedMs(layer);
      if (layer.dha > layer.exec + overloadFactor * layer.load || stall < added) break;
      methods[index] = 'dha';
      stall = stall - layer.load - added;
      if (stall <= 0) {
        steps = pipelineSteps(layers, methods);
        break;
      }
    }
  }
  return methods;
}

function insertSorted(sorted: number[], item: number, compare: (a: number, b: number) => number): void {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compare(sorted[middle]!, item) <= 0) low = middle + 1;
    else high = middle;
  }
  sorted.splice(low, 0, item);
}
