/** How much work something is, whatever else the machine does meanwhile. */

/**
 * CPU milliseconds of this process while `work` ran. Unlike the clock, they do not grow with the load of the machine.
 */
export async function cpuMsOf(work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
