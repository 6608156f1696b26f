/** When a test is taken to hang. Slow and busy machines stay below these limits. */
export const minuteMs = 60_000;

/** Of waits (`expect.poll`, `vi.waitFor`, `vi.waitUntil`, a page's elements): less than a test has, so that the error names what did not happen. */
export const waitLimitMs = 5 * minuteMs;
