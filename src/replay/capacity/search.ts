/** Finds how large a machine or fleet must be, by bisection over sizes. A larger size is never worse. */
import type { CapacityStep } from '../../report/index.ts';

export interface CapacityLimits {
  readonly gpusPerHost: number;
  readonly coresPerHost: number;
  readonly hostsMax: number;
}

/**
 * Sizes from the cheapest on: one GPU more within a host, then one host more. Without GPUs, one core more within a
 * host.
 */
export function capacitySteps({ gpusPerHost, coresPerHost, hostsMax }: CapacityLimits): CapacityStep[] {
  const within = gpusPerHost > 0 ? gpusPerHost : coresPerHost;
  const steps = Array.from({ length: within }, (_, index) =>
    gpusPerHost > 0 ? { hosts: 1, gpus: index + 1, cores: coresPerHost } : { hosts: 1, gpus: 0, cores: index + 1 },
  );
  for (let hosts = 2; hosts <= hostsMax; hosts++) steps.push({ hosts, gpus: hosts * gpusPerHost, cores: coresPerHost });
  return steps;
}

/**
 * The first of `count` sizes that is enough, assuming that all larger ones are; undefined: not even the last is. Starts
 * at `guess` and doubles from there, so that sizes far larger than needed are never tried.
 *
 * @param isEnough is called at most once for each size: about twice the logarithm of the answer in all
 */
export async function firstEnough(
  count: number,
  guess: number,
  isEnough: (index: number) => Promise<boolean>,
): Promise<number | undefined> {
  let notEnough = -1;
  let enough = Math.min(count - 1, Math.max(0, guess));
  for (let stride = 1; !(await isEnough(enough)); stride *= 2) {
    if (enough === count - 1) return undefined;
    notEnough = enough;
    enough = Math.min(count - 1, enough + stride);
  }
  while (enough - notEnough > 1) {
    const middle = (enough + notEnough) >> 1;
    if (await isEnough(middle)) enough = middle;
    else notEnough = middle;
  }
  return enough;
}
