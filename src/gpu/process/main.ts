/**
 * The GPU process: one per machine, with all its GPUs. It may be ended at any time: ending it is the only cure for an
 * error that poisons a context.
 */
import { join } from 'node:path';
import { heap, serve } from '../../process/index.ts';
import { openCuda } from '../driver/open.ts';
import type { Cuda } from '../driver/types.ts';
import { lacksOf, sentenceOf, type Lacks } from '../self-test/beliefs.ts';
import { identityOf } from '../self-test/identity.ts';
import { selfTest } from '../self-test/self-test.ts';
import { GpuError } from '../types.ts';
import { Compiler } from './compiler.ts';
import type { GpuApi, GpuProcessInfo, GpuProcessSettings } from './protocol.ts';
import { GpuService } from './service.ts';

let service: GpuService | undefined;
let cuda: Cuda | undefined;

async function open(settings: GpuProcessSettings): Promise<GpuProcessInfo> {
  if (cuda !== undefined) throw new GpuError('invalid', 'the GPU process is open already');
  // Its thread starts while the driver is being opened.
  const compiler = new Compiler(settings.cacheFolder);
  try {
    cuda = openCuda({ cacheFolder: join(settings.cacheFolder, 'kernels') });
    const { unusable, without } = await lacksOfMachine(cuda, settings);
    if (unusable !== undefined) throw new GpuError('unavailable', unusable);
    service = new GpuService(cuda, compiler, settings, new Set([...without, ...(settings.without ?? [])]), shared);
    return service.info();
  } catch (error) {
    void compiler.close();
    throw error;
  }
}

/** Finds what the GPUs cannot do, by a self-test before their first use, and logs it. */
async function lacksOfMachine(opened: Cuda, settings: GpuProcessSettings): Promise<Lacks> {
  const { cacheFolder, selfTest: isWanted = !opened.isEmulated } = settings;
  if (!isWanted) return lacksOf([]);
  const { results } = await selfTest({ cacheFolder, identity: identityOf(opened) });
  for (const result of results) if (!result.holds) process.stderr.write(`${sentenceOf(result)}\n`);
  return lacksOf(results);
}

async function close(): Promise<void> {
  await service?.close();
  service = undefined;
  cuda?.release();
  cuda = undefined;
}

function opened(): GpuService['methods'] {
  if (service === undefined) throw new GpuError('unavailable', 'the GPU process is not open');
  return service.methods;
}

heap.keepForAnswers();
const shared = serve<GpuApi>(
  (name) => {
    if (name === 'open') return open;
    if (name === 'close') return close;
    if (name === 'run') heap.trimWhenIdle();
    return opened()[name];
  },
  { errors: { GpuError }, lent: ['run'] },
);
