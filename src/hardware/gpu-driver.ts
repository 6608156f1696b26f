import { listFolder, readText } from './files.ts';
import { findLibrary } from './library.ts';

export interface Gpu {
  readonly model: string;
  /** PCI address, "0000:17:00.0". */
  readonly busId: string;
  readonly uuid: string | undefined;
}

/** What is installed of the NVIDIA driver. */
export interface GpuDriver {
  /** Path of libcuda.so.1, the driver's interface for programs. */
  readonly library: string | undefined;
  /** Version of the loaded kernel module. */
  readonly version: string | undefined;
  readonly gpus: readonly Gpu[];
}

/** Reads what the NVIDIA driver says under /proc, without loading it. */
export function readGpuDriver(
  options: { readonly root?: string; readonly libraryPath?: string | undefined } = {},
): GpuDriver {
  const root = options.root ?? '/';
  const version = readText(root, 'proc/driver/nvidia/version');
  return {
    library: findLibrary('libcuda.so.1', options),
    // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ..."
    version: version === undefined ? undefined : /^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s/m.exec(version)?.[1],
    gpus: listFolder(root, 'proc/driver/nvidia/gpus').map((busId) => {
      const information = readText(root, `proc/driver/nvidia/gpus/${busId}/information`) ?? '';
      return {
        model: /^Model:\s*(.+)$/m.exec(information)?.[1]?.trim() ?? 'unknown model',
        busId,
        uuid: /^GPU UUID:\s*(\S+)$/m.exec(information)?.[1],
      };
    }),
  };
}
