import { policies, type Policy } from '../schedule/index.ts';
import type { assemble } from './config-assemble.ts';

type Assembled = ReturnType<typeof assemble>;

/** The host's configuration, merged from files, environment and flags; see wrangler-free-config/host.schema.json. */
export type HostConfig = { readonly [Group in keyof Assembled]: Readonly<Assembled[Group]> };

/** The scheduler's policy. */
export function policyOf({ gpu, admission }: Pick<HostConfig, 'gpu' | 'admission'>): Policy {
  return { ...policies[gpu.policy], ...gpu.policyParts, admission };
}
