/** What the pictures of timelines share. */

/** Round steps of 1, 2 or 5 times a power of ten, six to fifteen of them. */
export function ticks(endMs: number): number[] {
  if (!(endMs > 0)) return [0];
  const power = 10 ** Math.floor(Math.log10(endMs / 6));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => endMs / candidate <= 15) ?? 10 * power;
  const decimals = Math.max(0, -Math.floor(Math.log10(step)));
  return Array.from({ length: Math.floor(endMs / step) + 1 }, (_, index) => Number((index * step).toFixed(decimals)));
}

/** Text as it may stand in an SVG file. */
export function escaped(text: string): string {
  const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
  // Control characters are not allowed in XML at all.
  return text.replaceAll(/[&<>"]/g, (character) => entities[character] ?? '').replaceAll(/\p{Cc}/gu, ' ');
}
