/** Compiled kernels, and launches with their arguments in native memory. */
import { getOrMake } from '../../tools/index.ts';
import { writeInteger64, type NativeBlock } from './native-memory.ts';
import { DriverHandle, Owned, type Session } from './session.ts';
import { misuse } from './status.ts';
import type { CudaKernel, CudaModule, LaunchShape, ParameterType, PreparedLaunch } from './types.ts';

/** CUlaunchConfig of cuda.h, 56 bytes. What is not written stays 0: kernels here have no dynamic shared memory. */
const configuration = {
  grid: 0,
  block: 12,
  stream: 32,
  attributes: 40,
  attributeCount: 48,
  bytes: 56,
};
const tableOffset = 64;

function loadModule(session: Session, image: Uint8Array): number {
  // PTX must end with a NUL; a cubin does not mind one.
  using block = session.arena.allocate(image.byteLength + 1);
  new Uint8Array(block.data.buffer, block.data.byteOffset, image.byteLength).set(image);
  session.check('cuModuleLoadData', session.driver.cuModuleLoadData(session.outAddress(), block.address));
  return session.outInteger();
}

export class NativeModule extends DriverHandle implements CudaModule {
  readonly #kernels = new Map<string, NativeKernel>();

  /** The context must be current. */
  constructor(session: Session, context: number, image: Uint8Array) {
    super(session, context, 'modules', loadModule(session, image));
  }

  kernel(name: string): CudaKernel {
    return getOrMake(this.#kernels, name, () => this.#find(name));
  }

  #find(name: string): NativeKernel {
    const { session, context, handle } = this;
    session.use(context);
    using text = session.arena.allocateText(name);
    const status = session.driver.cuModuleGetFunction(session.outAddress(), handle, text.address);
    session.check('cuModuleGetFunction', status, `kernel '${name}'`);
    return new NativeKernel(session, context, name, session.outInteger());
  }
}

export class NativeKernel implements CudaKernel {
  readonly name: string;
  readonly handle: number;
  readonly context: number;
  readonly #session: Session;

  constructor(session: Session, context: number, name: string, handle: number) {
    this.#session = session;
    this.context = context;
    this.name = name;
    this.handle = handle;
  }

  prepare(shape: LaunchShape, parameters: readonly ParameterType[]): PreparedLaunch {
    for (const size of [...shape.grid, ...shape.block]) {
      if (!Number.isInteger(size) || size < 1) {
        const text = `grid ${shape.grid.join('x')}, block ${shape.block.join('x')}`;
        throw misuse('cuLaunchKernelEx', `kernel '${this.name}' cannot be launched with ${text}`);
      }
    }
    return new NativeLaunch(this.#session, this, shape, parameters);
  }
}

/**
 * One native block: CUlaunchConfig, then the addresses of the parameters, then their values (8 bytes each). A launch is
 * one call with four integers.
 */
export class NativeLaunch extends Owned implements PreparedLaunch {
  readonly kernel: NativeKernel;
  readonly shape: LaunchShape;
  readonly configurationAddress: number;
  readonly tableAddress: number;
  readonly #parameters: readonly ParameterType[];
  readonly #block: NativeBlock;
  readonly #valuesOffset: number;
  #stream = 0;

  constructor(session: Session, kernel: NativeKernel, shape: LaunchShape, parameters: readonly ParameterType[]) {
    super();
    this.kernel = kernel;
    this.shape = shape;
    this.#parameters = parameters;
    this.#valuesOffset = tableOffset + parameters.length * 8;
    this.#block = session.arena.allocate(this.#valuesOffset + parameters.length * 8);
    const { data, address } = this.#block;
    this.configurationAddress = address;
    this.tableAddress = address + tableOffset;
    for (const [axis, size] of shape.grid.entries()) data.setUint32(configuration.grid + axis * 4, size, true);
    for (const [axis, size] of shape.block.entries()) data.setUint32(configuration.block + axis * 4, size, true);
    for (let index = 0; index < parameters.length; index++) {
      writeInteger64(data, tableOffset + index * 8, address + this.#valuesOffset + index * 8);
    }
  }

  set(index: number, value: number): void {
    const type = this.#parameters[index];
    if (type === undefined) {
      throw misuse('cuLaunchKernelEx', `kernel '${this.kernel.name}' has no parameter ${index}`);
    }
    if (this.released) throw misuse('cuLaunchKernelEx', `the launch of '${this.kernel.name}' was released`);
    const { data } = this.#block;
    const at = this.#valuesOffset + index * 8;
    switch (type) {
      case 'pointer':
      case 'i64':
        writeInteger64(data, at, value);
        break;
      case 'i32':
        data.setInt32(at, value, true);
        break;
      case 'u32':
        data.setUint32(at, value, true);
        break;
      case 'f32':
        data.setFloat32(at, value, true);
        break;
    }
  }

  /** The stream is part of CUlaunchConfig. */
  setStream(stream: number): void {
    if (stream === this.#stream) return;
    writeInteger64(this.#block.data, configuration.stream, stream);
    this.#stream = stream;
  }

  protected giveBack(): void {
    this.#block.release();
  }
}
