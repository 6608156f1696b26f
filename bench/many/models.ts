/** Model heads of typical size: one matrix of weights, and an answer that shows which head gave it. */
import { existsSync } from 'node:fs';
import { mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { projectRoot } from '../servers.ts';

/** Functions beyond this number load the same files, to spare the disk. */
const filesMax = 100;

export interface Head {
  readonly modelPath: string;
  readonly width: number;
  /** y = x times this. */
  readonly factor: number;
}

/** @param kibibytes of weights, a power of four */
export async function headOf(kibibytes: number, index: number): Promise<Head> {
  const width = Math.round(Math.sqrt((kibibytes * 1024) / 4));
  const file = index % filesMax;
  const factor = file + 1;
  const folder = join(projectRoot, '.cache', 'bench-many');
  const modelPath = join(folder, `head-${width}-${file}.onnx`);
  if (!existsSync(modelPath)) {
    await mkdir(folder, { recursive: true });
    const graph = new GraphBuilder('head');
    const x = graph.input('x', ElementType.FLOAT, ['batch', width]);
    const weights = graph.weight('w', [width, width], new Float32Array(width * width).fill(factor / width));
    graph.output(graph.node('MatMul', [x, weights]), ElementType.FLOAT, ['batch', width], 'y');
    const part = `${modelPath}.${process.pid}.part`;
    await writeModel(graph.build(), part);
    await rename(part, modelPath);
  }
  return { modelPath, width, factor };
}
