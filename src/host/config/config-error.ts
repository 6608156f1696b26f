/** A configuration that cannot be used; the message names the file, variable or flag, the field and what is allowed. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** A value as a message shows it. */
export function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
