/** The process of self-test.ts, which tests beliefs. A failed test may end the process or poison its context. */
import { join } from 'node:path';
import { serve } from '../../process/index.ts';
import { openCuda } from '../driver/open.ts';
import type { Cuda } from '../driver/types.ts';
import type { OperatorGroup } from '../operators/index.ts';
import { failureOf, type GpuFailure } from '../types.ts';
import type { Belief } from './beliefs.ts';
import { checks } from './checks.ts';
import { identityOf } from './identity.ts';
import { checkOperators } from './operators.ts';
import type { BeliefRequest } from './protocol.ts';

let opened: Cuda | undefined;

const isOfHardware = (belief: Belief): belief is keyof typeof checks => belief in checks;

async function answer(request: BeliefRequest): Promise<string> {
  const { cacheFolder } = request;
  opened ??= openCuda({ cacheFolder: join(cacheFolder, 'kernels') });
  if (request.op === 'identify') return identityOf(opened);
  const { belief } = request;
  const without = new Set(request.without);
  if (isOfHardware(belief)) return await checks[belief](opened, without);
  const group = belief.slice('operators '.length) as OperatorGroup;
  return await checkOperators(opened, group, join(cacheFolder, 'self-test'), without);
}

serve<BeliefRequest, GpuFailure>(async (request) => ({ answer: await answer(request) }), { inOrder: true, failureOf });
