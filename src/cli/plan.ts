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
  command.addCommand(deepplanCommand().summary('how a function that is not on the GPU starts there soonest'));
  for (const make of [chrionCommand, packratCommand, serfCommand, capacityCommand]) command.addCommand(make());
  return command;
}
