/** The part of a pino logger that the folders below the host, and parts of the host, write to. */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}
