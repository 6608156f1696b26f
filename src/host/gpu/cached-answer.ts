/**
 * Caches the latest answer to a question. Concurrent callers share one request; if it is not answered in time, they get
 * the previous answer.
 */
export function cachedAnswer<T>(ask: () => Promise<T | undefined>, waitMs: number) {
  let asking: Promise<T | undefined> | undefined;
  let last: T | undefined;
  const fresh = (): Promise<T | undefined> =>
    (asking ??= new Promise((resolve) => {
      const late = setTimeout(() => resolve(last), waitMs);
      const take = async (): Promise<void> => {
        last = await ask();
        clearTimeout(late);
        // From now on the next caller asks again.
        asking = undefined;
        resolve(last);
      };
      void take();
    }));
  return { fresh, last: (): T | undefined => last };
}
