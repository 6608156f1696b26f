/** Streams, events and graphs of one device. */
import { contextOf } from './memory.ts';
import { NativeLaunch } from './modules.ts';
import { NativeMatmul } from './matmul.ts';
import { DriverHandle, type DeviceCore } from './session.ts';
import { graphUpdateFailed, misuse } from './status.ts';
import type {
  CudaEvent,
  CudaGraph,
  CudaStream,
  DeviceAddress,
  Matmul,
  MatmulOperands,
  PreparedLaunch,
} from './types.ts';

/** Streams that do not wait for the legacy default stream. */
const nonBlocking = 1;
/** Unsafe calls of this thread end a capture with an error, those of other threads do not. */
const threadLocal = 1;

export class NativeEvent extends DriverHandle implements CudaEvent {
  readonly timing: boolean;

  constructor(core: DeviceCore, timing: boolean) {
    super(core.session, core.context, 'events', core.newEvent(timing));
    this.timing = timing;
  }

  msSince(earlier: CudaEvent): number {
    const { session } = this;
    const start = nativeEvent(earlier);
    if (!this.timing || !start.timing) {
      throw misuse('cuEventElapsedTime', 'time between events was asked for, but they were made without timing');
    }
    session.use(this.context);
    const status = session.driver.cuEventElapsedTime(session.outAddress(), start.handle, this.handle);
    session.check('cuEventElapsedTime', status);
    return session.out.data.getFloat32(0, true);
  }
}

export class NativeGraph extends DriverHandle implements CudaGraph {
  readonly kind = 'graph';

  constructor({ session, context }: DeviceCore, handle: number) {
    super(session, context, 'graphs', handle);
  }
}

function createStreamHandle({ session, context }: DeviceCore, priority: 'high' | 'normal'): number {
  session.use(context);
  const range = session.driver.cuCtxGetStreamPriorityRange(session.outAddress(0), session.outAddress(1));
  session.check('cuCtxGetStreamPriorityRange', range);
  // Lower numbers are more urgent; the first result is the least urgent one.
  const chosen = priority === 'high' ? session.outInt(1) : session.outInt(0);
  const status = session.driver.cuStreamCreateWithPriority(session.outAddress(), nonBlocking, chosen);
  session.check('cuStreamCreateWithPriority', status);
  return session.outInteger();
}

export class NativeStream extends DriverHandle implements CudaStream {
  readonly #core: DeviceCore;

  constructor(core: DeviceCore, priority: 'high' | 'normal') {
    super(core.session, core.context, 'streams', createStreamHandle(core, priority));
    this.#core = core;
  }

  copy(destination: DeviceAddress, source: DeviceAddress, bytes: number): void {
    if (bytes === 0) return;
    const { session, copied } = this.#core;
    const handle = this.#use();
    const { driver, memories } = session;
    // Between devices, the peer call also works without peer access.
    const to = contextOf(memories, destination);
    const from = contextOf(memories, source);
    const status =
      to !== 0 && from !== 0 && to !== from
        ? driver.cuMemcpyPeerAsync(destination, to, source, from, bytes, handle)
        : driver.cuMemcpyAsync(destination, source, bytes, handle);
    session.check('cuMemcpyAsync', status, `${bytes} bytes`);
    if (from === to) return;
    if (from === 0) copied.fromHost += bytes;
    else if (to === 0) copied.toHost += bytes;
    else copied.toPeers += bytes;
  }

  fill(destination: DeviceAddress, byteValue: number, bytes: number): void {
    if (bytes === 0) return;
    const { session } = this.#core;
    const handle = this.#use();
    session.check('cuMemsetD8Async', session.driver.cuMemsetD8Async(destination, byteValue & 0xff, bytes, handle));
  }

  launch(launch: PreparedLaunch): void {
    if (!(launch instanceof NativeLaunch) || launch.released) {
      throw misuse('cuLaunchKernelEx', `the launch of '${launch.kernel.name}' was released`);
    }
    const { session, context } = this.#core;
    if (launch.kernel.context !== context) {
      throw misuse('cuLaunchKernelEx', `kernel '${launch.kernel.name}' belongs to another device than the stream`);
    }
    const handle = this.#use();
    launch.setStream(handle);
    const { driver } = session;
    const status = driver.cuLaunchKernelEx(launch.configurationAddress, launch.kernel.handle, launch.tableAddress, 0);
    if (status !== 0) {
      const { grid, block } = launch.shape;
      const shape = `grid ${grid.join('x')}, block ${block.join('x')}`;
      throw session.error('cuLaunchKernelEx', status, `kernel '${launch.kernel.name}', ${shape}`);
    }
  }

  matmul(matmul: Matmul, operands: MatmulOperands): void {
    if (!(matmul instanceof NativeMatmul)) {
      throw misuse('cublasLtMatmul', 'the product was made by something else');
    }
    matmul.run(operands, this.#use());
  }

  wait(event: CudaEvent): void {
    const { session } = this.#core;
    const handle = this.#use();
    session.check('cuStreamWaitEvent', session.driver.cuStreamWaitEvent(handle, nativeEvent(event).handle, 0));
  }

  record(event: CudaEvent): void {
    const { session } = this.#core;
    const handle = this.#use();
    session.check('cuEventRecord', session.driver.cuEventRecord(nativeEvent(event).handle, handle));
  }

  synchronize(): void {
    const { session } = this.#core;
    session.check('cuStreamSynchronize', session.driver.cuStreamSynchronize(this.#use()));
  }

  async finished(): Promise<void> {
    const core = this.#core;
    const { session } = core;
    const handle = this.#use();
    const event = core.takeWaitEvent();
    let status: number;
    try {
      session.check('cuEventRecord', session.driver.cuEventRecord(event, handle));
      status = await core.waiter.wait(core.context, event);
    } finally {
      core.giveWaitEvent(event);
    }
    session.check('cuEventQuery', status);
  }

  capture(submit: () => void, earlier?: CudaGraph): CudaGraph {
    const core = this.#core;
    const { session } = core;
    const { driver } = session;
    const handle = this.#use();
    session.check('cuStreamBeginCapture_v2', driver.cuStreamBeginCapture_v2(handle, threadLocal));
    let failure: unknown;
    try {
      submit();
    } catch (error) {
      failure = error;
    }
    session.use(core.context);
    const ended = driver.cuStreamEndCapture(handle, session.outAddress());
    const template = session.outInteger();
    // A failed call may leave the stream in capture mode, in which later work would never run.
    if (ended !== 0 && driver.cuStreamEndCapture(handle, session.outAddress(1)) === 0) {
      driver.cuGraphDestroy(session.outInteger(1));
    }
    // The capture must be ended also after `submit` failed, and that failure is the one to report.
    if (failure !== undefined) {
      if (ended === 0 && template !== 0) driver.cuGraphDestroy(template);
      throw failure;
    }
    session.check('cuStreamEndCapture', ended);
    try {
      if (earlier !== undefined && this.#update(nativeGraph(earlier), template)) return earlier;
      const status = driver.cuGraphInstantiateWithFlags(session.outAddress(), template, 0);
      session.check('cuGraphInstantiateWithFlags', status);
      return new NativeGraph(core, session.outInteger());
    } finally {
      driver.cuGraphDestroy(template);
    }
  }

  /** False if the graphs differ in more than the driver can change. */
  #update(graph: NativeGraph, template: number): boolean {
    const { session } = this.#core;
    // The result is a CUgraphExecUpdateResultInfo of 24 bytes; the status is enough here.
    const status = session.driver.cuGraphExecUpdate_v2(graph.handle, template, session.outAddress());
    if (status === graphUpdateFailed) return false;
    session.check('cuGraphExecUpdate_v2', status);
    return true;
  }

  launchGraph(graph: CudaGraph): void {
    const { session } = this.#core;
    const handle = this.#use();
    session.check('cuGraphLaunch', session.driver.cuGraphLaunch(nativeGraph(graph).handle, handle));
  }

  /** Makes the context current. @throws CudaError 'misuse' after the release */
  #use(): number {
    const { handle } = this;
    this.#core.session.use(this.#core.context);
    return handle;
  }
}

function nativeGraph(graph: CudaGraph): NativeGraph {
  if (!(graph instanceof NativeGraph)) throw misuse('cuGraphLaunch', 'the graph was made by something else');
  return graph;
}

function nativeEvent(event: CudaEvent): NativeEvent {
  if (!(event instanceof NativeEvent)) throw misuse('cuEventRecord', 'the event was made by something else');
  return event;
}
