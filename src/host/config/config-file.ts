import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ConfigError, shown } from './config-error.ts';
import { packageRoot, type ConfigOption, type ConfigSchema } from './options.ts';
import { nearest } from './nearest.ts';

/** Reads the configuration file that was named, else the one in the working directory, else the one that ships. */
export function readConfigFile(
  named: string | undefined,
  workingDir: string,
): { file: string; json: unknown } | undefined {
  const relative = join('wrangler-free-config', 'host.json');
  const candidates =
    named === undefined ? [resolve(workingDir, relative), join(packageRoot, relative)] : [resolve(workingDir, named)];
  for (const file of candidates) {
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch (error) {
      if (named === undefined && (error as NodeJS.ErrnoException).code === 'ENOENT') continue;
      throw new ConfigError(`the configuration file ${file} cannot be read: ${(error as Error).message}`, {
        cause: error,
      });
    }
    try {
      return { file, json: JSON.parse(text.replace(/^\uFEFF/, '')) };
    } catch (error) {
      throw new ConfigError(`${file} is not JSON: ${describeSyntaxError(text, error as Error)}`, { cause: error });
    }
  }
  return undefined;
}

const certificates = (name: string): string =>
  `${name} is an option no more: the hosts of a fleet know each other by certificates. Make them with \`turntable key HOST ` +
  '--tls FOLDER`, and name them with "fleet.tlsCert", "fleet.tlsKey" and "fleet.tlsCa" (docs/fleet.md)';

/** What is said of options that are gone, by their paths: a host that ignored them would be less safe than it was. */
export const formerOptions: Readonly<Record<string, ((name: string) => string) | undefined>> = {
  'fleet.secret': certificates,
  'fleet.secretFile': certificates,
  'fleet.caFile': certificates,
};

/** The content of a file that an option names. @throws ConfigError */
export function fileOf(option: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new ConfigError(`"${option}": ${path} cannot be read: ${(error as Error).message}`);
  }
}

/** V8 reports a position in characters; people look for a line. */
function describeSyntaxError(text: string, error: Error): string {
  const position = /at position (\d+)/.exec(error.message)?.[1];
  const reason = error.message.replace(/ in JSON at position.*$/s, '').replace(/, ?"?\.\.\..*is not valid JSON$/s, '');
  if (position === undefined) return reason;
  const before = text.slice(0, Number(position)).split('\n');
  return `line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}: ${reason}`;
}

/**
 * Checks for unknown fields and sections that are no objects. The options' values are checked later, with those from
 * other sources.
 */
export function checkFileShape(
  json: unknown,
  file: string,
  schema: ConfigSchema,
  options: readonly ConfigOption[],
): void {
  const visit = (part: unknown, described: ConfigSchema, path: readonly string[]): void => {
    const { properties } = described;
    if (properties === undefined) return;
    if (typeof part !== 'object' || part === null || Array.isArray(part)) {
      const what = path.length === 0 ? 'holds' : `: "${path.join('.')}" is`;
      throw new ConfigError(`${file}${path.length === 0 ? ' ' : ''}${what} ${shown(part)}, but must be an object`);
    }
    for (const [name, inner] of Object.entries(part)) {
      const known = Object.hasOwn(properties, name) ? properties[name] : undefined;
      if (known !== undefined) {
        visit(inner, known, [...path, name]);
        continue;
      }
      const full = [...path, name].join('.');
      // A file may name `constructor`, too.
      const instead = Object.hasOwn(formerOptions, full) ? formerOptions[full] : undefined;
      if (instead !== undefined) throw new ConfigError(`${file}: ${instead(`"${full}"`)}`);
      const siblings = Object.keys(properties).filter((sibling) => sibling !== '$schema');
      const sibling = nearest(name, siblings);
      // "port" at the top level is more likely a forgotten section than a typo.
      const elsewhere = options.find(
        (option) => option.path.split('.').at(-1)?.toLowerCase() === name.toLowerCase(),
      )?.path;
      const meant =
        elsewhere ??
        (sibling === undefined
          ? nearest(
              full,
              options.map(({ path: known }) => known),
            )
          : [...path, sibling].join('.'));
      const hint = meant === undefined ? `known here: ${siblings.join(', ')}` : `did you mean "${meant}"?`;
      throw new ConfigError(`${file}: there is no option "${full}" (${hint})`);
    }
  };
  visit(json, schema, []);
}
