/** Runs the parts of a GPU day in sequence, within the available time. */

export interface Part {
  readonly name: string;
  /** The question it answers, for the table. */
  readonly question: string;
  /** It is not started with less time left. */
  readonly leastMinutes: number;
  /**
   * Ends within the given time, by itself or by force, and writes its result at once.
   * @throws Error saying what went wrong
   */
  run(minutes: number): Promise<string>;
}

export interface PartResult {
  readonly name: string;
  readonly question: string;
  readonly kind: 'done' | 'failed' | 'left out';
  /** Where its result is, or why there is none. */
  readonly text: string;
  readonly minutes: number;
}

/** @param nowMs a monotonic clock */
export async function runParts(
  parts: readonly Part[],
  minutes: number,
  progress: (text: string) => void,
  nowMs: () => number = () => performance.now(),
): Promise<PartResult[]> {
  const startMs = nowMs();
  const results: PartResult[] = [];
  for (const part of parts) {
    const { name, question, leastMinutes } = part;
    const beganMs = nowMs();
    const left = minutes - (beganMs - startMs) / 60_000;
    if (left < leastMinutes) {
      const text = `it takes ${leastMinutes} minutes at least, and ${Math.max(0, left).toFixed(1)} are left`;
      results.push({ name, question, kind: 'left out', text, minutes: 0 });
      continue;
    }
    progress(name);
    const ended = await part.run(left).then(
      (text) => ({ kind: 'done', text }) as const,
      (error: unknown) => ({ kind: 'failed', text: error instanceof Error ? error.message : String(error) }) as const,
    );
    results.push({ name, question, ...ended, minutes: (nowMs() - beganMs) / 60_000 });
  }
  return results;
}
