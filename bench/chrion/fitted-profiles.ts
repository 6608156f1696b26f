/**
 * On the emulated driver a kernel takes the time of its emulation, and plans from these times would put everything on
 * the CPU. So the profiles that a host stores there get the times of the machine in Chrion's paper: planning, loading
 * and eviction are then as on that machine, although nothing is that fast.
 */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  parseGraphProfile,
  parseLayerProfile,
  type GraphProfile,
  type LayerProfile,
  type OperatorProfile,
} from '../../src/profile/index.ts';
import { lstmCells } from '../../test/support/lstm-cells.ts';

const suffix = '.operators.json';
/** Of a cell of width 64 in the paper. */
const paperIoSize = 64;
const paperWeightBytes = 4 * paperIoSize * 2 * paperIoSize * 4;
const bytesPerMsAtOneGbPerSecond = 1e6;
/** Steps of a cell, from its name after unrolling. */
const stepsPattern = /\/step(\d+)-(\d+)(?:\/|$)/;

/** The stored form of a host; other fields of the file stay. */
interface Kept {
  readonly firstMeasuredFor: string;
  readonly profile: unknown;
}

/**
 * Gives every profile in `<dataDir>/plans/profiles` the times of the paper's machine; its host must not run meanwhile.
 * Resolves with the number of operator profiles.
 * @param batchOf rows that a function is called with
 */
export async function fitKeptProfiles(folder: string, batchOf: (functionName: string) => number): Promise<number> {
  const files = await readdir(folder);
  const structures = files.filter((file) => file.endsWith(suffix)).map((file) => file.slice(0, -suffix.length));
  for (const structure of structures) {
    let graph: GraphProfile | undefined;
    await rewrite(join(folder, structure + suffix), ({ profile, firstMeasuredFor }) => {
      graph = fittedGraph(parseGraphProfile(profile), batchOf(firstMeasuredFor));
      return graph;
    });
    // A function that cannot run completely on the GPU has no layer profile.
    if (!files.includes(`${structure}.json`)) continue;
    await rewrite(join(folder, `${structure}.json`), ({ profile }) => fittedLayers(parseLayerProfile(profile), graph!));
  }
  return structures.length;
}

async function rewrite(path: string, profileOf: (kept: Kept) => GraphProfile | LayerProfile): Promise<void> {
  const kept = JSON.parse(await readFile(path, 'utf8')) as Kept;
  await writeFile(path, `${JSON.stringify({ ...kept, profile: profileOf(kept) }, null, 1)}\n`);
}

/**
 * Cells take the paper's times, by steps and weights; other operators take none, since the paper's graphs have only
 * cells.
 */
export function fittedGraph(profile: GraphProfile, batch: number): GraphProfile {
  const { bandwidth, latency } = paperCopies();
  return {
    ...profile,
    nodes: profile.nodes.map((node) => fittedOperator(node, batch)),
    bandwidth,
    latency,
    callMs: 0,
  };
}

function fittedOperator(node: OperatorProfile, batch: number): OperatorProfile {
  const { name, gpu, cpu, bytes } = node;
  if (bytes.weights === 0) return { ...node, gpu: gpu === null ? null : 0, cpu: cpu.map(() => 0) };
  const [, first = '0', last = first] = stepsPattern.exec(name) ?? [];
  const steps = Number(last) - Number(first) + 1;
  // The formula uses the width of input and state: here the width of a cell with as many weights.
  const ioSize = paperIoSize * Math.sqrt(bytes.weights / paperWeightBytes);
  const [cell] = lstmCells({ layers: 1, batch, ioSize, sequence: 1 }, cpu.length).nodes;
  return {
    ...node,
    gpu: gpu === null ? null : steps * (cell?.gpu ?? 0),
    cpu: cpu.map((_, cores) => steps * (cell?.cpu[cores] ?? 0)),
  };
}

/** A layer takes the time of its operators, each of which reads it once if it stays in host memory. */
export function fittedLayers(profile: LayerProfile, { nodes }: GraphProfile): LayerProfile {
  const { bandwidth, latency } = paperCopies();
  return {
    ...profile,
    layers: profile.layers.map((layer) => {
      const readers = nodes.filter(({ shares }) => shares === layer.name);
      const exec = readers.reduce((sum, { gpu }) => sum + (gpu ?? 0), 0);
      if (layer.bytes === 0) return { ...layer, load: 0, exec, dha: exec };
      const wayMs = layer.bytes / (bandwidth * bytesPerMsAtOneGbPerSecond);
      return { ...layer, load: latency + wayMs, exec, dha: exec + Math.max(1, readers.length) * wayMs };
    }),
  };
}

const paperCopies = (): Pick<GraphProfile, 'bandwidth' | 'latency'> =>
  lstmCells({ layers: 1, batch: 1, ioSize: paperIoSize, sequence: 1 }, 1);
