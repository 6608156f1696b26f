/**
 * The GPU process: one for a machine, with all its GPUs. It ends when its socket closes, so that it never outlives its host,
 * and may be ended at any time: an error that poisons a context is only got rid of that way.
 */
import { Socket } from 'node:net';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { encodeMessage, FrameDecoder, type Message, type Tensor } from '../../tensor/index.ts';
import { openCuda } from '../driver/open.ts';
import { CudaError, type Cuda } from '../driver/types.ts';
import { GpuError } from '../types.ts';
import { Compiler } from './compiler.ts';
import {
  socketFd,
  type FromGpuProcess,
  type GpuProcessInfo,
  type GpuProcessSettings,
  type ToGpuProcess,
} from './protocol.ts';
import { GpuService } from './service.ts';

const socket = new Socket({ fd: socketFd, readable: true, writable: true });
const decoder = new FrameDecoder<ToGpuProcess>();
const aborts = new Map<number, AbortController>();
let service: GpuService | undefined;
let cuda: Cuda | undefined;

/** A call that never returns from the driver keeps this thread from seeing that the host is gone, so a second one looks. */
function endWithHost(): void {
  const source = `
    const host = process.ppid;
    setInterval(() => { if (process.ppid !== host) process.kill(process.pid, 'SIGKILL'); }, 1000);`;
  new Worker(source, {
    eval: true,
    resourceLimits: { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 2 },
  }).unref();
}

function send(header: FromGpuProcess, tensors: readonly Tensor[] = []): void {
  const buffers = encodeMessage({ header, tensors });
  socket.cork();
  for (const buffer of buffers) socket.write(buffer);
  socket.uncork();
}

function open(settings: GpuProcessSettings): GpuProcessInfo {
  if (service !== undefined) throw new GpuError('invalid', 'the GPU process is open already');
  // Its thread starts while the driver is opened.
  const compiler = new Compiler(settings.cacheFolder);
  try {
    cuda = openCuda({ cacheFolder: join(settings.cacheFolder, 'kernels') });
    service = new GpuService(cuda, compiler, settings);
    return service.info();
  } catch (error) {
    void compiler.close();
    throw error;
  }
}

async function close(): Promise<null> {
  await service?.close();
  service = undefined;
  cuda?.release();
  cuda = undefined;
  return null;
}

async function take({ header, tensors }: Message<ToGpuProcess>): Promise<void> {
  const { id } = header;
  if ('cancel' in header) {
    aborts.get(id)?.abort();
    return;
  }
  const abort = new AbortController();
  aborts.set(id, abort);
  try {
    const { request } = header;
    if (request.op === 'open') send({ id, ok: true, answer: open(request.settings) });
    else if (request.op === 'ping') send({ id, ok: true, answer: null });
    else if (request.op === 'close') send({ id, ok: true, answer: await close() });
    else if (service === undefined) throw new GpuError('unavailable', 'the GPU process is not open');
    else if (request.op === 'run') {
      const { answer, tensors: outputs } = await service.run(request, tensors, abort.signal);
      send({ id, ok: true, answer }, outputs);
    } else send({ id, ok: true, answer: await service.answer(request, abort.signal) });
  } catch (error) {
    send({ id, ok: false, code: codeOf(error), message: error instanceof Error ? error.message : String(error) });
  } finally {
    aborts.delete(id);
  }
}

function codeOf(error: unknown): (FromGpuProcess & { ok: false })['code'] {
  if (error instanceof GpuError) return error.code;
  return error instanceof CudaError ? error.kind : 'misuse';
}

socket.on('data', (chunk: Buffer) => {
  for (const message of decoder.push(chunk)) void take(message);
});
/** Not by an exit, which would wait for nothing and yet take ONNX Runtime down in the middle of a core's call, with a message and a core file. */
const end = (): void => void process.kill(process.pid, 'SIGKILL');
socket.on('close', end);
socket.on('error', end);
process.on('SIGINT', () => {
  // A terminal sends it to the whole group; the host decides when this process ends.
});
endWithHost();
