/** The work of something in CPU time, independent of other load on the machine. */

/**
 * CPU milliseconds of this process while `work` ran. Unlike wall time, they do not grow with the load of the machine.
 */
export async function cpuMsOf(work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
