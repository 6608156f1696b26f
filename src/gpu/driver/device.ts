/** One GPU: its properties and its memory; makes its streams, events, modules and products. */
import type { matmulFunctions, Calls } from './declarations.ts';
import { createMatmul, MatmulLibrary } from './matmul.ts';
import { allocateDeviceMemory } from './memory.ts';
import { NativeModule } from './modules.ts';
import { readText } from './native-memory.ts';
import { DeviceCore, type Session } from './session.ts';
import { misuse, peerAccessAlreadyEnabled } from './status.ts';
import { NativeEvent, NativeStream } from './streams.ts';
import type {
  CopiedBytes,
  CudaDevice,
  CudaEvent,
  CudaModule,
  CudaStream,
  DeviceAddress,
  DeviceMemory,
  Matmul,
  MatmulDescription,
} from './types.ts';
import type { Waiter } from './waiter.ts';

/** CUdevice_attribute */
const attribute = {
  multiprocessors: 16,
  capabilityMajor: 75,
  capabilityMinor: 76,
  sameAddressOfRegistered: 91,
  registersHostMemory: 99,
};

export class NativeDevice implements CudaDevice {
  readonly index: number;
  readonly name: string;
  readonly uuid: string;
  readonly pciBusId: string;
  readonly computeCapability: { readonly major: number; readonly minor: number };
  readonly multiprocessors: number;
  readonly totalBytes: number;
  readonly core: DeviceCore;
  /** Whether memory of the operating system can be pinned, at the same address on host and device. */
  readonly registersHostMemory: boolean;
  readonly #matmulCalls: () => Calls<typeof matmulFunctions>;
  readonly #peers = new Set<number>();
  #matmuls: MatmulLibrary | undefined;

  constructor(session: Session, waiter: Waiter, index: number, matmulCalls: () => Calls<typeof matmulFunctions>) {
    const { driver } = session;
    this.index = index;
    this.#matmulCalls = matmulCalls;
    session.check('cuDeviceGet', driver.cuDeviceGet(session.outAddress(), index), `device ${index}`);
    const ordinal = session.outInt();
    this.core = new DeviceCore(session, waiter, ordinal);
    this.name = textOf(session, 'cuDeviceGetName', (address) => driver.cuDeviceGetName(address, 256, ordinal));
    // The driver writes hexadecimal digits in upper case, sysfs in lower case.
    const busId = textOf(session, 'cuDeviceGetPCIBusId', (address) => driver.cuDeviceGetPCIBusId(address, 32, ordinal));
    this.pciBusId = busId.toLowerCase();
    session.check('cuDeviceGetUuid_v2', driver.cuDeviceGetUuid_v2(session.outAddress(), ordinal));
    this.uuid = uuidText(new Uint8Array(session.out.data.buffer, session.out.data.byteOffset, 16));
    session.check('cuDeviceTotalMem_v2', driver.cuDeviceTotalMem_v2(session.outAddress(), ordinal));
    this.totalBytes = session.outInteger();
    this.computeCapability = {
      major: this.#attribute(attribute.capabilityMajor),
      minor: this.#attribute(attribute.capabilityMinor),
    };
    this.multiprocessors = this.#attribute(attribute.multiprocessors);
    this.registersHostMemory =
      this.#attribute(attribute.registersHostMemory) === 1 && this.#attribute(attribute.sameAddressOfRegistered) === 1;
  }

  get copied(): CopiedBytes {
    return { ...this.core.copied };
  }

  memory(): { readonly freeBytes: number; readonly totalBytes: number } {
    const session = this.#use();
    const status = session.driver.cuMemGetInfo_v2(session.outAddress(0), session.outAddress(1));
    session.check('cuMemGetInfo_v2', status);
    return { freeBytes: session.outInteger(0), totalBytes: session.outInteger(1) };
  }

  allocate(bytes: number): DeviceMemory {
    return allocateDeviceMemory(this.#use(), this.core.context, bytes, `device memory on GPU ${this.index}`);
  }

  createStream(options: { readonly priority?: 'high' | 'normal' } = {}): CudaStream {
    return new NativeStream(this.core, options.priority ?? 'normal');
  }

  createEvent(options: { readonly timing?: boolean } = {}): CudaEvent {
    return new NativeEvent(this.core, options.timing ?? false);
  }

  loadModule(image: Uint8Array): CudaModule {
    return new NativeModule(this.#use(), this.core.context, image);
  }

  canAccessPeer(other: CudaDevice): boolean {
    const peer = this.#native(other);
    if (peer === this) return true;
    const { session, ordinal } = this.core;
    const status = session.driver.cuDeviceCanAccessPeer(session.outAddress(), ordinal, peer.core.ordinal);
    session.check('cuDeviceCanAccessPeer', status);
    return session.outInt() !== 0;
  }

  enablePeerAccess(other: CudaDevice): void {
    const peer = this.#native(other);
    if (peer === this || this.#peers.has(peer.index)) return;
    const peerContext = peer.core.context;
    const session = this.#use();
    const status = session.driver.cuCtxEnablePeerAccess(peerContext, 0);
    // Another part of the process may have enabled it before.
    if (status !== peerAccessAlreadyEnabled) {
      session.check('cuCtxEnablePeerAccess', status, `GPU ${this.index} to the memory of GPU ${other.index}`);
    }
    this.#peers.add(peer.index);
  }

  createMatmul(description: MatmulDescription): Matmul {
    this.#matmuls ??= new MatmulLibrary(this.#matmulCalls(), this.core);
    return createMatmul(this.#matmuls, description);
  }

  declareRange(address: DeviceAddress, bytes: number): void {
    this.core.session.emulation?.emuDeclareRange(address, bytes);
  }

  forgetRange(address: DeviceAddress): void {
    this.core.session.emulation?.emuForgetRange(address);
  }

  /** Ends the context and all objects in it. */
  release(): void {
    if (this.core.contextIfAny !== undefined) this.#matmuls?.release();
    this.#matmuls = undefined;
    this.core.release();
  }

  #use(): Session {
    this.core.session.use(this.core.context);
    return this.core.session;
  }

  #attribute(which: number): number {
    const { session, ordinal } = this.core;
    const status = session.driver.cuDeviceGetAttribute(session.outAddress(), which, ordinal);
    session.check('cuDeviceGetAttribute', status, `attribute ${which} of device ${this.index}`);
    return session.outInt();
  }

  #native(other: CudaDevice): NativeDevice {
    if (!(other instanceof NativeDevice) || other.core.session !== this.core.session) {
      throw misuse('cuCtxEnablePeerAccess', 'the other device was opened by something else');
    }
    return other;
  }
}

function textOf(session: Session, call: string, ask: (address: number) => number): string {
  using block = session.arena.allocate(256);
  session.check(call, ask(block.address));
  return readText(block);
}

/** 'GPU-' and a UUID, as nvidia-smi prints it. */
function uuidText(bytes: Uint8Array): string {
  const hex = Buffer.from(bytes).toString('hex');
  const parts = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)];
  return `GPU-${parts.join('-')}`;
}
