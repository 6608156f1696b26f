/**
 * Returns what undoes all later changes to this process's environment. In place: in a worker whose `process.env` is another
 * object than at its start, `vi.stubEnv` deletes nothing.
 */
export function environmentNow(): () => void {
  const before = { ...process.env };
  return () => {
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
    Object.assign(process.env, before);
  };
}
