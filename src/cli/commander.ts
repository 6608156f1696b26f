/** Commander, with the types of its own maintainers that know a command's arguments and options from its usage. */
import * as commander from 'commander';
import type * as typed from '@commander-js/extra-typings';

// The package with the types is not installed at run time. Its classes are those of `commander`, which it loads.
export const { Command, CommanderError, InvalidArgumentError, Option } = commander as unknown as typeof typed;

export type Command<Args extends unknown[], Options extends OptionValues> = typed.Command<Args, Options>;
export type AnyCommand = typed.CommandUnknownOpts;
export type OptionValues = typed.OptionValues;
/** The options that a command's action receives. */
export type OptionsOf<Made extends AnyCommand> = ReturnType<Made['opts']>;

type AllOptions<Flags extends readonly AnyCommand[]> = Flags extends readonly [
  infer First extends AnyCommand,
  ...infer More extends AnyCommand[],
]
  ? OptionsOf<First> & AllOptions<More>
  : unknown;

/** Adds the options of others to a command. */
export function withFlags<Args extends unknown[], Options extends OptionValues, Flags extends AnyCommand[]>(
  command: Command<Args, Options>,
  ...flags: Flags
): Command<Args, Options & AllOptions<Flags>> {
  for (const option of flags.flatMap(({ options }) => options)) command.addOption(option);
  // The same command, which has them now.
  return command as unknown as Command<Args, Options & AllOptions<Flags>>;
}
