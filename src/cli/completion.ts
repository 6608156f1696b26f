/** Completion scripts for shells, made from the table of commands: names, flags, and the choices of an option. */
import { Argument, Command, type AnyCommand } from './commander.ts';

const shells = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof shells)[number];

type Completed = ReturnType<typeof describe>;

/** @param commands each with the function that makes it */
export function completionCommand(
  commands: readonly { readonly name: string; readonly summary: string; readonly load: () => Promise<AnyCommand> }[],
): AnyCommand {
  return new Command('completion')
    .description(
      'Print a script that completes commands and flags. bash: source <(turntable completion bash). zsh: source ' +
        '<(turntable completion zsh). fish: turntable completion fish | source.',
    )
    .addArgument(new Argument('<shell>', 'the shell').choices(shells))
    .action(async (shell) => {
      const table = await Promise.all(
        commands.map(async ({ name, summary, load }) => describe(name, summary, await load())),
      );
      process.stdout.write(scripts[shell](table));
    });
}

function describe(name: string, summary: string, command: AnyCommand) {
  const flags = command.options.flatMap(({ long, description, required, optional, hidden }) =>
    long === undefined || hidden ? [] : [{ long, about: description, takesValue: required || optional }],
  );
  return { name, summary, flags, subcommands: command.commands.map((each) => each.name()) };
}

const scripts: Readonly<Record<Shell, (table: readonly Completed[]) => string>> = {
  bash: (table) => `# Completion of turntable for bash; made by \`turntable completion bash\`.
_turntable() {
  local word=\${COMP_WORDS[COMP_CWORD]} words=
  if [ "$COMP_CWORD" = 1 ]; then
    words='${names(table).join(' ')} help'
  else
    case "\${COMP_WORDS[1]}" in
${table.map((each) => `      ${each.name}) words='${wordsOf(each).join(' ')}' ;;`).join('\n')}
      help) words='${names(table).join(' ')}' ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _turntable turntable
`,
  zsh: (table) => `#compdef turntable
# Completion of turntable for zsh; made by \`turntable completion zsh\`.
_turntable() {
  local -a commands
  commands=(
${table.map(({ name, summary }) => `    '${name}:${quoted(summary)}'`).join('\n')}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case $words[2] in
${table.map((each) => `    ${each.name}) compadd -- ${wordsOf(each).join(' ')} ;;`).join('\n')}
  esac
  _files
}
compdef _turntable turntable
`,
  fish: (table) => `# Completion of turntable for fish; made by \`turntable completion fish\`.
${table.map(fishLines).join('\n')}
`,
};

function fishLines({ name, summary, flags, subcommands }: Completed): string {
  const inside = `-n '__fish_seen_subcommand_from ${name}'`;
  return [
    `complete -c turntable -n __fish_use_subcommand -f -a ${name} -d '${quoted(summary)}'`,
    ...subcommands.map((each) => `complete -c turntable ${inside} -f -a ${each}`),
    ...flags.map(({ long, about, takesValue }) => {
      const value = takesValue ? ' -r' : '';
      return `complete -c turntable ${inside} -l ${long.slice(2)}${value} -d '${quoted(about)}'`;
    }),
  ].join('\n');
}

const names = (table: readonly Completed[]): string[] => table.map(({ name }) => name);

const wordsOf = ({ flags, subcommands }: Completed): string[] => [
  ...subcommands,
  ...flags.map(({ long }) => long),
  '--help',
];

/** For single quotes, on one line, without colons: zsh ends a name at a colon. */
function quoted(text: string): string {
  return text.replaceAll(/['\\:]/g, ' ').replaceAll(/\s+/g, ' ');
}
