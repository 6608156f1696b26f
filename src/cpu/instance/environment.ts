/**
 * By default glibc keeps freed blocks of up to 32 MiB for later: after a load those are copies of weights that are of
 * no more use, as much again as half of a small model in every instance. So large blocks go back to the system at once.
 */
const allocator = { MALLOC_MMAP_THRESHOLD_: String(1024 * 1024), MALLOC_TRIM_THRESHOLD_: String(4 * 1024 * 1024) };

/** A handler sees what its operator set for it, but not the host's own settings: there are keys among them. */
export function instanceEnvironment(): NodeJS.ProcessEnv {
  const given = Object.entries(process.env).filter(([name]) => !name.startsWith('TURNTABLE_'));
  return { ...allocator, ...Object.fromEntries(given) };
}
