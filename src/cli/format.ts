/** Numbers as people read them. */

/** A size for people, to three digits: "1.34 GB" of 1_340_000_000. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let index = 0;
  // 999.5 would print as 1000.
  while (value >= 999.5 && index < units.length - 1) {
    value /= 1000;
    index++;
  }
  return `${index === 0 ? value : Number(value.toPrecision(3))} ${units[index]}`;
}

/** A duration for people: "0.42 ms", "35 ms", "1.2 s", "3 min 5 s". */
export function formatMs(milliseconds: number): string {
  if (milliseconds < 1) return `${Number(milliseconds.toPrecision(2))} ms`;
  if (milliseconds < 999.5) return `${Number(milliseconds.toPrecision(3))} ms`;
  if (milliseconds < 60_000) return `${Number((milliseconds / 1000).toPrecision(3))} s`;
  const seconds = Math.round(milliseconds / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}
