/** Compiles kernels with NVRTC. The disk cache's key is a hash of NVRTC's version, the architecture and the source. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { getOrMake, writeWhole } from '../../tools/index.ts';
import { compilerFunctions, type Calls } from './declarations.ts';
import { bind, type LoadedLibrary } from './libraries.ts';
import { readInteger64, writeInteger64, type NativeArena } from './native-memory.ts';
import { checkCompiler } from './status.ts';
import { CudaError } from './types.ts';
import type { CudaDevice, KernelCompiler } from './types.ts';

const preludeFile = fileURLToPath(new URL('../kernels/prelude.cu', import.meta.url));
/** First bytes of a cache entry; the number changes with its format. */
const magic = 'turntable kernels 1\n';
const digestBytes = 32;

/** Of a log in an error message: the first errors are enough, hundreds may follow from them. */
const logCharactersMax = 4000;

export class NativeCompiler implements KernelCompiler {
  readonly version: string;
  readonly #calls: Calls<typeof compilerFunctions>;
  readonly #arena: NativeArena;
  readonly #folder: string;
  readonly #prelude: string;
  /** Numbers like 90 for sm_90, ascending. */
  readonly #architectures: readonly number[];
  readonly #underway = new Map<string, Promise<Uint8Array>>();

  constructor(library: LoadedLibrary, arena: NativeArena, cacheFolder: string) {
    this.#calls = bind(library, compilerFunctions);
    this.#arena = arena;
    this.#folder = cacheFolder;
    this.#prelude = readFileSync(preludeFile, 'utf8');
    using out = arena.allocate(16);
    checkCompiler('nvrtcVersion', this.#calls.nvrtcVersion(out.address, out.address + 8));
    this.version = `NVRTC ${out.data.getInt32(0, true)}.${out.data.getInt32(8, true)}`;
    this.#architectures = this.#supportedArchitectures();
  }

  async compile(source: string, device: CudaDevice): Promise<Uint8Array> {
    const architecture = this.#architectureFor(device);
    const text = `${this.#prelude}\n${source}`;
    const key = createHash('sha256').update(`${this.version}\0${architecture}\0${text}`).digest('hex');
    return await getOrMake(this.#underway, key, () =>
      this.#fromCacheOrSource(key, text, architecture).finally(() => this.#underway.delete(key)),
    );
  }

  async #fromCacheOrSource(key: string, text: string, architecture: string): Promise<Uint8Array> {
    const file = join(this.#folder, `${key}.kernels`);
    const cached = await readEntry(file);
    if (cached !== undefined) return cached;
    const image = await this.#build(text, architecture);
    await writeEntry(file, image);
    return image;
  }

  /**
   * Machine code if the compiler knows the device; else PTX of the newest architecture before it, which the driver
   * translates.
   */
  #architectureFor(device: CudaDevice): string {
    const { major, minor } = device.computeCapability;
    const wanted = major * 10 + minor;
    if (this.#architectures.length === 0 || this.#architectures.includes(wanted)) return `sm_${wanted}`;
    const older = this.#architectures.findLast((known) => known < wanted);
    if (older !== undefined) return `compute_${older}`;
    const message =
      `${this.version} cannot compile for ${device.name} (compute capability ${major}.${minor}): ` +
      `it starts at ${this.#architectures[0]! / 10}; an older CUDA version's libnvrtc can, named by TURNTABLE_LIBNVRTC`;
    throw new CudaError('unsupported', 'nvrtcCompileProgram', 5, 'NVRTC_ERROR_INVALID_OPTION', message);
  }

  #supportedArchitectures(): number[] {
    const calls = this.#calls;
    using count = this.#arena.allocate(8);
    checkCompiler('nvrtcGetNumSupportedArchs', calls.nvrtcGetNumSupportedArchs(count.address));
    const length = count.data.getInt32(0, true);
    using list = this.#arena.allocate(Math.max(1, length) * 4);
    checkCompiler('nvrtcGetSupportedArchs', calls.nvrtcGetSupportedArchs(list.address));
    return Array.from({ length }, (_, index) => list.data.getInt32(index * 4, true)).toSorted((a, b) => a - b);
  }

  /** Compiles on koffi's thread pool: it takes 20 to 250 ms. */
  async #build(text: string, architecture: string): Promise<Uint8Array> {
    const calls = this.#calls;
    const arena = this.#arena;
    const options = [`--gpu-architecture=${architecture}`, '--std=c++17'];
    const source = arena.allocateText(text);
    const name = arena.allocateText('turntable.cu');
    const optionTexts = options.map((option) => arena.allocateText(option));
    const optionTable = arena.allocate(options.length * 8);
    const program = arena.allocate(16);
    try {
      for (const [index, { address }] of optionTexts.entries()) writeInteger64(optionTable.data, index * 8, address);
      const created = calls.nvrtcCreateProgram(program.address, source.address, name.address, 0, 0, 0);
      checkCompiler('nvrtcCreateProgram', created);
      const handle = readInteger64(program.data, 0);
      try {
        const status = await new Promise<number>((resolve, reject) => {
          calls.nvrtcCompileProgram.async(handle, options.length, optionTable.address, (error, value) => {
            if (error === null || error === undefined) resolve(value);
            else reject(error);
          });
        });
        if (status !== 0) checkCompiler('nvrtcCompileProgram', status, this.#log(handle));
        return architecture.startsWith('sm_')
          ? this.#result(handle, 'nvrtcGetCUBINSize', 'nvrtcGetCUBIN')
          : this.#result(handle, 'nvrtcGetPTXSize', 'nvrtcGetPTX');
      } finally {
        calls.nvrtcDestroyProgram(program.address);
      }
    } finally {
      for (const block of [source, name, ...optionTexts, optionTable, program]) block.release();
    }
  }

  #log(handle: number): string {
    const bytes = this.#result(handle, 'nvrtcGetProgramLogSize', 'nvrtcGetProgramLog');
    const log = new TextDecoder().decode(bytes).replace(/\0+$/, '').trim();
    return log.length > logCharactersMax ? `${log.slice(0, logCharactersMax)} ...` : log;
  }

  #result(
    handle: number,
    sizeCall: 'nvrtcGetCUBINSize' | 'nvrtcGetPTXSize' | 'nvrtcGetProgramLogSize',
    call: 'nvrtcGetCUBIN' | 'nvrtcGetPTX' | 'nvrtcGetProgramLog',
  ): Uint8Array {
    using size = this.#arena.allocate(8);
    checkCompiler(sizeCall, this.#calls[sizeCall](handle, size.address));
    using block = this.#arena.allocate(Math.max(1, readInteger64(size.data, 0)));
    checkCompiler(call, this.#calls[call](handle, block.address));
    return new Uint8Array(block.data.buffer, block.data.byteOffset, block.bytes).slice();
  }
}

/** Undefined if there is no entry, or a damaged one. */
async function readEntry(file: string): Promise<Uint8Array | undefined> {
  let entry: Buffer;
  try {
    entry = await readFile(file);
  } catch {
    return undefined;
  }
  const imageOffset = magic.length + digestBytes;
  if (entry.length <= imageOffset || entry.toString('latin1', 0, magic.length) !== magic) return undefined;
  const image = entry.subarray(imageOffset);
  return createHash('sha256').update(image).digest().equals(entry.subarray(magic.length, imageOffset))
    ? new Uint8Array(image)
    : undefined;
}

/** Without the entry, the kernels are compiled again next time: no reason to fail now. */
async function writeEntry(file: string, image: Uint8Array): Promise<void> {
  const digest = createHash('sha256').update(image).digest();
  await writeWhole(file, Buffer.concat([Buffer.from(magic, 'latin1'), digest, image])).catch(() => undefined);
}
