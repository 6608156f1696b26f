/** More would wait for the same disk or connection. */
const atOnceUsual = 8;

/** Does the work for each item, a few at a time. After an error no more is begun; it is thrown once the rest is over. */
export async function inParallel<Item>(
  items: readonly Item[],
  work: (item: Item) => Promise<unknown>,
  atOnce = atOnceUsual,
): Promise<void> {
  const left = items.values();
  let failure: { readonly error: unknown } | undefined;
  const worker = async (): Promise<void> => {
    for (const item of left) {
      if (failure !== undefined) return;
      try {
        await work(item);
      } catch (error) {
        failure ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker));
  if (failure !== undefined) throw failure.error;
}
