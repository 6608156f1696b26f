/** Finds and loads the driver, NVRTC and cuBLASLt. The search order is that of {@link candidates}. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, dirname, isAbsolute, join } from 'node:path';
import type { LibraryHandle } from 'koffi';
import { getOrMake } from '../../tools/index.ts';
import { childEnvironment, loadKoffi, nativeStackBytes } from '../../process/index.ts';
import type { Calls, DeclarationTable, NativeCall } from './declarations.ts';
import { CudaError } from './types.ts';

export type LibraryName = 'libcuda' | 'libnvrtc' | 'libcublasLt';

interface LibrarySpec {
  readonly title: string;
  /** The environment variable that names the file. If it is set, no other place is tried. */
  readonly variable: string;
  /** The folder in Python wheels, below `site-packages`, for a CUDA version. */
  readonly wheelFolder: (major: number) => string | undefined;
  readonly fileName: (major: number) => string;
}

const specs: Readonly<Record<LibraryName, LibrarySpec>> = {
  libcuda: {
    title: 'the NVIDIA driver',
    variable: 'TURNTABLE_LIBCUDA',
    wheelFolder: () => undefined,
    fileName: () => 'libcuda.so.1',
  },
  libnvrtc: {
    title: 'the CUDA run-time compiler',
    variable: 'TURNTABLE_LIBNVRTC',
    wheelFolder: (major) => (major >= 13 ? `nvidia/cu${major}/lib` : 'nvidia/cuda_nvrtc/lib'),
    fileName: (major) => `libnvrtc.so.${major}`,
  },
  libcublasLt: {
    title: 'cuBLASLt',
    variable: 'TURNTABLE_LIBCUBLASLT',
    wheelFolder: (major) => (major >= 13 ? `nvidia/cu${major}/lib` : 'nvidia/cublas/lib'),
    fileName: (major) => `libcublasLt.so.${major}`,
  },
};

const cudaMajorNewest = 13;
const cudaMajorOldest = 12;

const koffi = loadKoffi();
let configured = false;

/**
 * Must run in every thread before its first library is loaded. @throws CudaError if another library was loaded before
 * with smaller stacks
 */
function configureStacks(): void {
  if (configured) return;
  try {
    koffi.config(nativeStackBytes);
  } catch (error) {
    // Another part of the program loaded a library first; its stacks may be large enough.
    const found = koffi.config();
    for (const kind of ['sync_stack_size', 'async_stack_size'] as const) {
      if ((found[kind] ?? 0) >= nativeStackBytes[kind]) continue;
      const reason = `another library was loaded with small stacks before the CUDA driver: ${(error as Error).message}`;
      throw new CudaError('unavailable', 'koffi.config', 0, 'STACKS_TOO_SMALL', reason);
    }
  }
  configured = true;
}

/** Libraries must stay referenced: koffi unloads one that is garbage collected. */
const loaded = new Map<string, LibraryHandle>();

export interface Candidate {
  /** A path, or a bare name that the dynamic linker looks up. */
  readonly file: string;
  readonly origin: string;
}

export interface SearchOptions {
  /** The library's path; no other place is tried. */
  readonly path?: string | undefined;
  readonly environment?: NodeJS.ProcessEnv;
  /** The driver's CUDA version (13 for 13.0): libraries of that version come first, newer ones are left out. */
  readonly cudaMajor?: number | undefined;
}

/** The files to try, in order. Paths are listed only if they exist; the given path and the variable's always are. */
export function candidates(name: LibraryName, options: SearchOptions = {}): Candidate[] {
  const spec = specs[name];
  const environment = options.environment ?? process.env;
  if (options.path !== undefined) return [{ file: options.path, origin: 'the path that was given' }];
  const override = environment[spec.variable];
  if (override !== undefined && override !== '') return [{ file: override, origin: spec.variable }];
  const majors = name === 'libcuda' ? [cudaMajorNewest] : majorsFor(options.cudaMajor);
  const found: Candidate[] = [];
  for (const major of majors) {
    const folder = spec.wheelFolder(major);
    if (folder === undefined) continue;
    for (const packages of pythonFolders(environment)) {
      const file = join(packages, folder, spec.fileName(major));
      if (existsSync(file)) found.push({ file, origin: 'a Python package' });
    }
  }
  for (const major of majors) found.push({ file: spec.fileName(major), origin: 'the dynamic linker' });
  for (const major of majors) {
    for (const folder of toolkitFolders(environment)) {
      const file = join(folder, spec.fileName(major));
      if (existsSync(file)) found.push({ file, origin: 'a CUDA installation' });
    }
  }
  return found;
}

function majorsFor(driverMajor: number | undefined): number[] {
  const newest = Math.max(cudaMajorOldest, driverMajor ?? cudaMajorNewest);
  const majors: number[] = [];
  for (let major = newest; major >= cudaMajorOldest; major--) majors.push(major);
  return majors;
}

export type LoadedLibrary = ReturnType<typeof loadLibrary>;

/** @throws CudaError 'unavailable' with each file that was tried and why it failed */
export function loadLibrary(name: LibraryName, options: SearchOptions = {}) {
  configureStacks();
  const failures: string[] = [];
  for (const { file, origin } of candidates(name, options)) {
    try {
      if (name === 'libnvrtc') loadBuiltins(file);
      return { name, file, origin, handle: open(file) };
    } catch (error) {
      // koffi's message has the linker's reason, but not always the file.
      const reason = (error as Error).message.replace(/^Failed to load shared library: /, '');
      failures.push(`${file} from ${origin} (${reason})`);
    }
  }
  const { title, variable } = specs[name];
  const message =
    `${title} was not found: tried ${failures.join('; ')}` +
    (options.path === undefined && (options.environment ?? process.env)[variable] === undefined
      ? `; looked in Python packages, the dynamic linker's folders, CUDA_HOME, CUDA_PATH, /usr/local/cuda*, /usr/local/nvidia and /opt/cuda; ${variable} can name the file`
      : '');
  throw new CudaError('unavailable', name, 0, 'LIBRARY_NOT_FOUND', message);
}

function open(file: string): LibraryHandle {
  return getOrMake(loaded, file, () => koffi.load(file));
}

/**
 * NVRTC opens its builtins by bare name, which fails unless they are loaded already or in one of the linker's folders.
 */
function loadBuiltins(nvrtc: string): void {
  if (!isAbsolute(nvrtc)) return;
  for (const entry of readFolder(dirname(nvrtc))) {
    if (!entry.startsWith('libnvrtc-builtins.so.')) continue;
    // libnvrtc.so.13 goes with libnvrtc-builtins.so.13.0; the folder may have other versions too.
    const version = /\.so\.(\d+)/.exec(basename(nvrtc))?.[1];
    if (version !== undefined && !entry.startsWith(`libnvrtc-builtins.so.${version}.`)) continue;
    open(join(dirname(nvrtc), entry));
  }
}

/** Binds every function of a table. @throws CudaError 'unavailable' with the functions that the library lacks */
export function bind<Table extends DeclarationTable>(library: LoadedLibrary, table: Table): Calls<Table> {
  const calls = callsOf(library, table);
  const missing = Object.keys(table).filter((name) => calls[name] === undefined);
  if (missing.length > 0) {
    const message = `${library.file} is too old, or not what it is named: it lacks ${missing.join(', ')}`;
    throw new CudaError('unavailable', library.name, 0, 'FUNCTION_NOT_FOUND', message);
  }
  return calls as Calls<Table>;
}

/** The same; undefined if the library lacks one of the functions. */
export function bindIfPresent<Table extends DeclarationTable>(
  library: LoadedLibrary,
  table: Table,
): Calls<Table> | undefined {
  const calls = callsOf(library, table);
  return Object.values(calls).includes(undefined) ? undefined : (calls as Calls<Table>);
}

const callsOf = <Table extends DeclarationTable>(library: LoadedLibrary, table: Table): Partial<Calls<Table>> =>
  Object.fromEntries(
    Object.entries(table).map(([name, parameters]) => [name, bindOne(library, name, parameters)]),
  ) as Partial<Calls<Table>>;

function bindOne(
  { handle }: LoadedLibrary,
  name: string,
  parameters: readonly string[],
): NativeCall<readonly never[]> | undefined {
  try {
    return handle.func(name, 'int', [...parameters]);
  } catch {
    return undefined;
  }
}

function pythonFolders(environment: NodeJS.ProcessEnv): string[] {
  const chosen = [environment['VIRTUAL_ENV'], environment['CONDA_PREFIX']];
  const usual = [join(homedir(), '.local'), '/usr/local', '/opt/conda', '/opt/venv', '/usr'];
  return [
    ...(environment['PYTHONPATH'] ?? '').split(':').filter((folder) => folder !== ''),
    ...chosen.flatMap(packagesBelow),
    ...packagesOfPython(environment['PATH']),
    ...usual.flatMap(packagesBelow),
  ];
}

function packagesBelow(prefix: string | undefined): string[] {
  if (prefix === undefined || prefix === '') return [];
  return readFolder(join(prefix, 'lib'))
    .filter((entry) => /^python3(\.\d+)?$/.test(entry))
    .flatMap((entry) => ['site-packages', 'dist-packages'].map((packages) => join(prefix, 'lib', entry, packages)));
}

const pythonTimeoutMs = 5000;
const packagesByPath = new Map<string, readonly string[]>();

/**
 * The package folders of the `python3` on the PATH. It may be a script that picks an interpreter (pyenv), so only
 * running it shows its folders.
 */
function packagesOfPython(path: string | undefined): readonly string[] {
  if (path === undefined) return [];
  return getOrMake(packagesByPath, path, () => askPython(path));
}

function askPython(path: string): string[] {
  const question = 'import site; print("\\n".join([*site.getsitepackages(), site.getusersitepackages()]))';
  try {
    const answer = execFileSync('python3', ['-c', question], {
      env: { ...childEnvironment(), PATH: path },
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      timeout: pythonTimeoutMs,
    });
    return answer.split('\n').filter((line) => isAbsolute(line));
  } catch {
    // There is no python3, or it does not start.
    return [];
  }
}

function toolkitFolders(environment: NodeJS.ProcessEnv): string[] {
  const roots = [environment['CUDA_HOME'], environment['CUDA_PATH']].filter(
    (root) => root !== undefined && root !== '',
  );
  const installed = readFolder('/usr/local')
    .filter((entry) => /^cuda(-[\d.]+)?$/.test(entry))
    .map((entry) => join('/usr/local', entry));
  const folders: string[] = [];
  for (const root of [...roots, ...installed, '/opt/cuda'] as string[]) {
    folders.push(join(root, 'lib64'), join(root, 'targets', 'x86_64-linux', 'lib'), join(root, 'lib'));
  }
  const conda = environment['CONDA_PREFIX'];
  if (conda !== undefined && conda !== '') folders.push(join(conda, 'lib'));
  // Container hosts without NVIDIA's container toolkit mount the driver below /usr/local/nvidia.
  return [...folders, '/usr/local/nvidia/lib64', '/usr/local/nvidia/lib', '/usr/lib/x86_64-linux-gnu', '/usr/lib64'];
}

function readFolder(path: string): string[] {
  try {
    return readdirSync(path).toSorted();
  } catch {
    return [];
  }
}
