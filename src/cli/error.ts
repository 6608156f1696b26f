/** A failure that the user is told in one line; anything else that is thrown is a defect. */
export class CliError extends Error {
  override readonly name = 'CliError';
  /** 1: it did not work; 2: the command line was wrong. */
  readonly exitCode: 1 | 2;
  constructor(message: string, options?: ErrorOptions & { readonly exitCode?: 1 | 2 }) {
    super(message, options);
    this.exitCode = options?.exitCode ?? 1;
  }
}
