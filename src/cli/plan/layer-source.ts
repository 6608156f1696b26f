import type { Machine } from '../../hardware/index.ts';
import { readModel, type ModelProto } from '../../onnx/index.ts';
import { estimateLayers, modelNames, namedModel, parseLayerProfile } from '../../profile/index.ts';
import { CliError } from '../error.ts';
import { parseSizes, weightBitsOf, type GpuPrecision } from '../values.ts';
import { readProfile } from '../planning.ts';

/** The layers to plan for, and how their times came about. */
export type LayerSource = Awaited<ReturnType<typeof readLayers>>;

export interface LayerSourceOptions {
  readonly profile?: string;
  readonly model?: string;
  readonly dimension?: readonly string[];
  readonly precision?: GpuPrecision;
  readonly coding?: boolean;
  readonly gpu: number;
}

/** Tokens of a sequence whose length an ONNX file leaves open. */
const assumedSequence = 384;

/** Reads a profile, or estimates one for a named model or an ONNX file on a machine. */
export async function readLayers(options: LayerSourceOptions, machine: Machine) {
  if (options.profile !== undefined) {
    const profile = readProfile(options.profile, parseLayerProfile);
    return { name: options.profile, profile, provenance: 'as given', notes: [] };
  }
  const given = parseSizes(options.dimension ?? [], '--dimension');
  const { model, name, dimensions } = await openModel(options.model ?? '');
  const assumed = new Map<string, number>();
  const openSize = (dimension = 'without a name'): number => {
    const size = /seq|tokens|length/i.test(dimension) ? assumedSequence : 1;
    assumed.set(dimension, size);
    return size;
  };
  const { profile, unknown } = estimateLayers(model, machine, {
    gpu: options.gpu,
    dimensions: { ...dimensions, ...given },
    openSize,
    weightBits: weightBitsOf(options.precision),
    coding: options.coding === true,
  });
  /** What a reader should know: sizes that were assumed, operators that could not be estimated. */
  const notes: string[] = [];
  if (assumed.size > 0) {
    const sizes = [...assumed].map(([dimension, size]) => `${dimension} = ${size}`);
    notes.push(`assumed of open dimensions: ${sizes.join(', ')} (--dimension name=size says otherwise)`);
  }
  if (unknown.length > 0) {
    const shown = unknown.slice(0, 3).join(', ');
    notes.push(
      `${unknown.length} operators have results of unknown shape and count as a kernel without data: ${shown}`,
    );
  }
  return { name, profile, provenance: 'estimated', notes };
}

async function openModel(
  nameOrPath: string,
): Promise<{ name: string; model: ModelProto; dimensions: Readonly<Record<string, number>> }> {
  if (modelNames().includes(nameOrPath.toLowerCase().replaceAll('_', '-'))) return namedModel(nameOrPath);
  if (!/[/\\.]/.test(nameOrPath)) {
    throw new CliError(
      `there is no model '${nameOrPath}'; there are ${modelNames().join(', ')}, or give the path of an ONNX file`,
    );
  }
  return { name: nameOrPath, model: await readModel(nameOrPath), dimensions: {} };
}
