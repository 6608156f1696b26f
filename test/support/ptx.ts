/** PTX of kernels by clang, which needs no CUDA on the machine. */
import { spawnSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { outputOf } from './run-command.ts';

const language = join(import.meta.dirname, '../gpu/nvptx/cuda-language.h');
const prelude = join(import.meta.dirname, '../../src/gpu/kernels/prelude.cu');

/** The command; undefined where no clang knows NVIDIA's GPUs. */
export const clang = ['clang', 'clang-14', 'clang-15', 'clang-16', 'clang-19'].find((command) => {
  const { status, stdout } = spawnSync(command, ['--print-targets'], { encoding: 'utf8' });
  return status === 0 && stdout.includes('nvptx64');
});

const flags = (
  '-x cuda --cuda-device-only --cuda-gpu-arch=sm_75 -nocudainc -nocudalib -std=c++17 -S ' +
  '-Xclang -target-feature -Xclang +ptx70 -Wno-unknown-cuda-version -include'
).split(' ');

/**
 * PTX of a translation unit.
 *
 * @param folder for temporary files
 * @throws Error with clang's message
 */
export async function ptxOf(source: string, folder: string, optimization: '-O1' | '-O3' = '-O1'): Promise<string> {
  const input = join(folder, 'kernels.cu');
  const output = join(folder, 'kernels.ptx');
  await writeFile(input, `${await readFile(prelude, 'utf8')}\n${source}`);
  await outputOf(clang!, [optimization, ...flags, language, '-o', output, input]);
  return await readFile(output, 'utf8');
}
