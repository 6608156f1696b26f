/**
 * By default glibc keeps freed blocks of up to 32 MiB. After a load these are unused copies of weights, half as much
 * again as a small model in every instance. This setting returns large blocks to the system at once.
 */
const allocator = { MALLOC_MMAP_THRESHOLD_: String(1024 * 1024), MALLOC_TRIM_THRESHOLD_: String(4 * 1024 * 1024) };

/** A handler sees the variables that its operator set for it, but not the host's own settings, which include keys. */
export function instanceEnvironment(): NodeJS.ProcessEnv {
  const given = Object.entries(process.env).filter(([name]) => !name.startsWith('TURNTABLE_'));
  return { ...allocator, ...Object.fromEntries(given) };
}
