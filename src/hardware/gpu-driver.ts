import { listFolder, readText } from '../tools/index.ts';
import { findLibrary } from './library.ts';

/** Whether there is a driver, or a stand-in that the environment names. */
export function hasGpuDriver(environment: Readonly<Record<string, string | undefined>> = process.env): boolean {
  return environment['TURNTABLE_LIBCUDA'] !== undefined || findLibrary('libcuda.so.1') !== undefined;
}

/** Reads what the NVIDIA driver says under /proc, without loading it. */
export function readGpuDriver(options: { readonly root?: string; readonly libraryPath?: string | undefined } = {}) {
  const root = options.root ?? '/';
  const version = readText(root, 'proc/driver/nvidia/version');
  return {
    /** Path of libcuda.so.1, the driver's interface for programs. */
    library: findLibrary('libcuda.so.1', options),
    // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ..."
    /** Version of the loaded kernel module. */
    version: version === undefined ? undefined : /^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s/m.exec(version)?.[1],
    gpus: listFolder(root, 'proc/driver/nvidia/gpus').map((busId) => {
      const information = readText(root, `proc/driver/nvidia/gpus/${busId}/information`) ?? '';
      return {
        model: /^Model:\s*(.+)$/m.exec(information)?.[1]?.trim() ?? 'unknown model',
        /** PCI address, "0000:17:00.0". */
        busId,
        uuid: /^GPU UUID:\s*(\S+)$/m.exec(information)?.[1],
      };
    }),
  };
}

/** The last words of the path of the module that a host runs in its GPU process. */
const gpuProcessModule = 'gpu/process/main.js';

/** The numbers of the processes that run models on this machine's GPUs for hosts. */
export const gpuProcessesHere = (root = '/'): number[] =>
  listFolder(root, 'proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) =>
      readText(root, `proc/${pid}/cmdline`)
        ?.split('\0')
        .some((word) => word.endsWith(gpuProcessModule)),
    )
    .map(Number);
