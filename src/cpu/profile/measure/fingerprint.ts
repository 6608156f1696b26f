/** The machine and software that a measurement holds for. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { readCores } from '../../../hardware/index.ts';
import type { MeasuredOn } from '../predict/index.ts';

export function measuredOn(cores: number): MeasuredOn {
  return { processor: readCores().model ?? 'unknown processor', cores, onnxRuntime: onnxRuntimeVersion() };
}

/** Version of the package that instances load. */
function onnxRuntimeVersion(): string {
  try {
    const entry = createRequire(import.meta.url).resolve('onnxruntime-node');
    const { version } = JSON.parse(readFileSync(join(dirname(entry), '..', 'package.json'), 'utf8')) as {
      version?: unknown;
    };
    return typeof version === 'string' ? version : 'unknown';
  } catch {
    return 'unknown';
  }
}

/** A short name for {@link MeasuredOn}, for files: the same only for the same machine and software. */
export function fingerprint({ processor, cores, onnxRuntime }: MeasuredOn): string {
  return createHash('sha256').update(`${processor}\n${cores}\n${onnxRuntime}`).digest('hex').slice(0, 12);
}
