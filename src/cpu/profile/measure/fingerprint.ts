/** The machine and software that a measurement holds for. */
import { createHash } from 'node:crypto';
import { readCores } from '../../../hardware/index.ts';
import { onnxRuntimeVersion } from '../../../tensor/index.ts';
import type { MeasuredOn } from '../predict/index.ts';

export function measuredOn(cores: number): MeasuredOn {
  return { processor: readCores().model ?? 'unknown processor', cores, onnxRuntime: onnxRuntimeVersion() };
}

/** A short name for {@link MeasuredOn}, for files: the same only for the same machine and software. */
export function fingerprint({ processor, cores, onnxRuntime }: MeasuredOn): string {
  return createHash('sha256').update(`${processor}\n${cores}\n${onnxRuntime}`).digest('hex').slice(0, 12);
}
