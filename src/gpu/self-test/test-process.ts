/** The process of self-test.ts, which tests beliefs. A failed test may end the process or poison its context. */
import { join } from 'node:path';
import { serve } from '../../process/index.ts';
import { openCuda } from '../driver/open.ts';
import type { Cuda } from '../driver/types.ts';
import type { OperatorGroup } from '../operators/index.ts';
import { GpuError } from '../types.ts';
import type { Belief } from './beliefs.ts';
import { checks } from './checks.ts';
import { identityOf } from './identity.ts';
import { checkOperators } from './operators.ts';
import type { BeliefApi } from './self-test.ts';

let opened: Cuda | undefined;

const cudaOf = (cacheFolder: string): Cuda => (opened ??= openCuda({ cacheFolder: join(cacheFolder, 'kernels') }));

const isOfHardware = (belief: Belief): belief is keyof typeof checks => belief in checks;

async function test({ cacheFolder, belief, without }: Parameters<BeliefApi['test']>[0]): Promise<string> {
  const cuda = cudaOf(cacheFolder);
  const lacks = new Set(without);
  if (isOfHardware(belief)) return await checks[belief](cuda, lacks);
  const group = belief.slice('operators '.length) as OperatorGroup;
  return await checkOperators(cuda, group, join(cacheFolder, 'self-test'), lacks);
}

serve<BeliefApi>({ identify: ({ cacheFolder }) => identityOf(cudaOf(cacheFolder)), test }, { GpuError });
