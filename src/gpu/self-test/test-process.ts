/** The process of self-test.ts, which tests beliefs. A failed test may end the process or poison its context. */
import { join } from 'node:path';
import { serve } from '../../process/index.ts';
import { openCuda } from '../driver/open.ts';
import type { Cuda } from '../driver/types.ts';
import { GpuError } from '../types.ts';
import { checks } from './checks.ts';
import { identityOf } from './identity.ts';
import type { BeliefApi } from './self-test.ts';

let opened: Cuda | undefined;

const cudaOf = (cacheFolder: string): Cuda => (opened ??= openCuda({ cacheFolder: join(cacheFolder, 'kernels') }));

const test = ({ cacheFolder, belief, without }: Parameters<BeliefApi['test']>[0]): Promise<string> =>
  checks[belief](cudaOf(cacheFolder), new Set(without));

serve<BeliefApi>({ identify: ({ cacheFolder }) => identityOf(cudaOf(cacheFolder)), test }, { errors: { GpuError } });
