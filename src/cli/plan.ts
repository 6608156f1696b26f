import { Command, type AnyCommand } from './commander.ts';
import { capacityCommand } from './capacity.ts';
import { chrionCommand } from './plan/chrion.ts';
import { deepplanCommand } from './plan/deepplan.ts';
import { packratCommand } from './plan/packrat.ts';
import { serfCommand } from './plan/serf.ts';

export function planCommand(): AnyCommand {
  const command = new Command('plan').description(
    'Plan from a profile, without running anything. Forms of profiles: wrangler-free-config/profiles/.',
  );
  for (const planner of [
    deepplanCommand().summary('how a function that is not on the GPU starts there soonest'),
    chrionCommand(),
    packratCommand(),
    serfCommand(),
    capacityCommand(),
  ]) {
    // The parent's settings reach only commands that are made through it.
    planner.option('--debug', 'print the stack of an error').exitOverride();
    planner.showHelpAfterError(`(turntable plan ${planner.name()} --help tells more)`);
    command.addCommand(planner);
  }
  return command;
}
