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

/** The command line was wrong. */
export function usage(message: string, cause?: unknown): CliError {
  return new CliError(message, { cause, exitCode: 2 });
}

/** Errors of these classes are the user's to mend, and become one line; what else `act` throws is a defect. */
export function spoken<Result>(
  classes: readonly (abstract new (...args: never[]) => Error)[],
  act: () => Result,
  exitCode: 1 | 2 = 1,
): Result {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof Error) || !classes.some((each) => error instanceof each)) throw error;
    throw new CliError(error.message, { cause: error, exitCode });
  }
}
