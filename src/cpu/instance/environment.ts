/** A handler sees the variables that its operator set for it, but not the host's own settings, which include keys. */
export function instanceEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TURNTABLE_')));
}
