/**
 * Plans that ship with the project, in `plans/<machine>/<model>.json`: reference architectures on the machine presets.
 * Layer times are estimated, starts simulated; they serve a function of that structure on such a machine until it has
 * been measured here.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ColdStartMode, LayerMethod } from '../../plan/index.ts';
import type { LayerProfile } from '../../profile/index.ts';

/**
 * One layer: its name, bytes, milliseconds to load, execute, and execute from host memory; and its method in each mode
 * of `methods`.
 */
export type LayerRow = readonly [
  name: string,
  bytes: number,
  loadMs: number,
  executeMs: number,
  dhaMs: number,
  ...methods: LayerMethod[],
];

export interface ShippedPlan {
  readonly model: string;
  readonly machine: string;
  readonly gpus: readonly string[];
  readonly provenance: string;
  /** Sizes of the model's open dimensions for the estimate. */
  readonly dimensions: Readonly<Record<string, number>>;
  /** For GPU 0, by mode: simulated milliseconds of a cold start to the answer, and bytes that the plan loads. */
  readonly starts: Readonly<Record<string, { readonly coldMs: number; readonly gpuBytes: number }>>;
  /** The columns of `layers`. */
  readonly columns: readonly string[];
  readonly layers: readonly LayerRow[];
}

/** A shipped plan that fits a function and the machine. */
export interface FoundPlan {
  /** Estimated. */
  readonly profile: LayerProfile;
  /** Its name in `turntable ps`. */
  readonly source: string;
  /** The method of each layer in a mode. */
  methodsOf(mode: ColdStartMode): readonly LayerMethod[];
}

export type ShippedPlans = ReturnType<typeof shippedPlans>;

/** @param folder of folders by machine; a missing one has no plans */
export function shippedPlans(folder: string) {
  let plans: ReturnType<typeof readPlans> | undefined;
  /** The plan for layers of these sizes, in order, on these GPUs. */
  return async (
    layers: readonly { readonly bytes: number }[],
    gpuNames: readonly string[],
  ): Promise<FoundPlan | undefined> => {
    for (const [path, plan] of await (plans ??= readPlans(folder))) {
      if (!isAlike(plan.gpus, gpuNames) || plan.layers.length !== layers.length) continue;
      const rows = laidOut(plan.layers, layers);
      if (rows !== undefined) return toFound(path, { ...plan, layers: rows });
    }
    return undefined;
  };
}

async function readPlans(folder: string): Promise<(readonly [path: string, plan: ShippedPlan])[]> {
  const found: (readonly [string, ShippedPlan])[] = [];
  const paths = await readdir(folder, { recursive: true }).catch((): string[] => []);
  for (const path of paths.filter((each) => each.endsWith('.json')).toSorted()) {
    try {
      const plan = JSON.parse(await readFile(join(folder, path), 'utf8')) as ShippedPlan;
      // A file added by someone else may not be a plan.
      if (Array.isArray(plan.layers) && Array.isArray(plan.gpus)) found.push([`plans/${path}`, plan]);
    } catch {
      // No plan, then: the function is measured.
    }
  }
  return found;
}

/**
 * The rows of a plan in the engine's layout: weights that one product reads together (Q, K and V) lie in the first
 * one's layer, and the others have none. Undefined if the sizes are those of another model.
 */
function laidOut(rows: readonly LayerRow[], layers: readonly { readonly bytes: number }[]): LayerRow[] | undefined {
  const found: LayerRow[] = [];
  while (found.length < rows.length) {
    const [first, ...rest] = rows.slice(found.length);
    const wantedBytes = layers[found.length]!.bytes;
    let bytes = first![1];
    let end = 0;
    while (bytes < wantedBytes && layers[found.length + 1 + end]?.bytes === 0) bytes += rest[end++]![1];
    if (bytes !== wantedBytes) return undefined;
    const moved = rest.slice(0, end);
    const sumOf = (column: 2 | 3 | 4): number => moved.reduce((sum, row) => sum + row[column], first![column]);
    const [name, , , , , ...methods] = first!;
    found.push([name, bytes, sumOf(2), sumOf(3), sumOf(4), ...methods]);
    for (const [other, , , , , ...others] of moved) found.push([other, 0, 0, 0, 0, ...others]);
  }
  return found;
}

const wordsOf = (name: string): string => name.toLowerCase().replaceAll(/nvidia|[^a-z0-9]/g, '');

const isAlike = (some: readonly string[], others: readonly string[]): boolean =>
  some.length === others.length && some.every((name, index) => wordsOf(name) === wordsOf(others[index]!));

function toFound(path: string, { layers, columns }: ShippedPlan): FoundPlan {
  return {
    profile: {
      unit: 'ms',
      layers: layers.map(([name, bytes, load, exec, dha]) => ({ name, kind: 'layer', bytes, load, exec, dha })),
    },
    source: `${path}, estimated`,
    methodsOf: (mode) => {
      const column = columns.indexOf(mode);
      return layers.map((row) => (column === -1 ? 'load' : (row[column] as LayerMethod)));
    },
  };
}
