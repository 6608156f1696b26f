/** The longest delay of Node's timers, 25 days: one that is longer rings at once. */
export const timerMsMax = 2 ** 31 - 1;

/** How long to wait before another try: twice as long each time, from `firstMs` on. */
export const backoffMs = (firstMs: number, before: number, mostMs = Infinity): number =>
  Math.min(mostMs, firstMs * 2 ** Math.max(0, before));

/** Whether the work ended within `ms`; it goes on in any case. An error in that time is passed on. */
export async function doneWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
