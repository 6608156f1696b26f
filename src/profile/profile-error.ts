import { schemaProblem } from '../hardware/index.ts';

/** A profile that cannot be used; the message is one sentence that names the field. */
export class ProfileError extends Error {
  override readonly name = 'ProfileError';
}

/** Makes a check from `wrangler-free-config/profiles/<name>.schema.json`; the check throws {@link ProfileError}. */
export function profileCheck(name: string, what: string): (json: unknown) => void {
  const problemOf = schemaProblem(`profiles/${name}.schema.json`, what);
  return (json) => {
    const problem = problemOf(json);
    if (problem !== undefined) throw new ProfileError(problem);
  };
}
